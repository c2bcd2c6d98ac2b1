package org.pocketbert.host;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.bytedeco.javacpp.Loader;
import org.bytedeco.tensorflowlite.global.tensorflowlite;
import org.pocketbert.benchmark.Benchmark;
import org.pocketbert.benchmark.Configuration;
import org.pocketbert.benchmark.ProcessMemory;
import org.pocketbert.benchmark.Schedule;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.json.Json;

/** Measures one configuration in its own process: {@code Worker LABEL BUNDLE LENGTH THREADS OUTPUT [CACHE]}. */
final class Worker {
  private Worker() {}

  public static void main(String[] arguments) throws IOException {
    // Unpacking the native library is not the model's opening time.
    Loader.load(tensorflowlite.class);
    Path cache = arguments.length > 5 ? Path.of(arguments[5]) : null;
    if (cache != null) {
      CachingDelegate.load();
    }
    Long baseMemoryBytes = ProcessMemory.residentBytes();
    Bundle bundle = Bundle.open(Path.of(arguments[1]));
    Configuration configuration =
        new Configuration(arguments[0], bundle, Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
    Map<String, Object> measurement =
        Benchmark.measure(new HostPlatform(cache), Schedule.FULL, configuration, baseMemoryBytes);
    measurement.put("weight_cache_bytes", cache == null ? null : Files.size(cache));
    Files.writeString(Path.of(arguments[4]), Json.write(measurement));
  }
}
