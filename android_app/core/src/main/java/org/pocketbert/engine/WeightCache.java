package org.pocketbert.engine;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.Sha256;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.LinuxFacts;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;

/**
 * A file with a model's weights in XNNPACK's layout, as in {@code pocketbert_bench.weight_cache}.
 *
 * <p>XNNPACK checks a cache's structure, not its content: changed bytes give wrong outputs, and another model's cache can
 * end the process. Therefore a record beside the cache has its SHA-256 and its model, runtime and processor. A cache is
 * opened only if all of them match.
 */
public final class WeightCache {
  /** Writes a cache. */
  public interface Builder {
    /** Opens the model with a cache at a path without a file. */
    void build(Path cache) throws IOException, InterruptedException;
  }

  private static final int KEY_DIGITS = 32;
  // XNNPACK packs float16 weights as float32, which doubles them, and adds a header.
  private static final long MOST_GROWTH = 2;
  private static final long HEADER_BYTES = 16 << 20;
  // The same as in pocketbert_bench.machine.
  private static final List<String> FEATURES =
      Arrays.asList(
          "vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU implementer", "CPU part");

  /** The verified file. */
  public final Path path;

  private final Path folder;
  private final Path record;
  private final Map<String, Object> dependsOn = new LinkedHashMap<>();
  private boolean isNew;

  private WeightCache(Path folder, String modelSha256, String runtime) {
    this.folder = folder;
    dependsOn.put("model_sha256", modelSha256);
    dependsOn.put("runtime", runtime);
    // XNNPACK packs weights for the processor's model and instruction sets.
    StringBuilder features = new StringBuilder();
    for (String name : FEATURES) {
      features.append(name).append(": ").append(LinuxFacts.entry("/proc/cpuinfo", name, "")).append('\n');
    }
    String processor = LinuxFacts.entry("/proc/cpuinfo", "model name", "unknown");
    dependsOn.put("cpu", processor + " " + System.getProperty("os.arch"));
    dependsOn.put("cpu_sha256", sha256(features.toString()));
    String key = sha256(Json.write(dependsOn)).substring(0, KEY_DIGITS);
    path = folder.resolve(key + ".xnnpack");
    record = folder.resolve(key + ".json");
  }

  /**
   * Verifies the cache of a model, and builds it if the folder has none. A cache that does not match its record is built
   * again, with a message.
   *
   * @param folder created if missing
   * @param modelSha256 SHA-256 of the model file
   * @param modelBytes its size
   * @param runtime name and release of the runtime
   * @param builder called if there is no valid cache
   * @throws UserError if nothing can be written to the folder, there is too little room, or the runtime wrote no cache
   */
  public static WeightCache prepare(
      Path folder, String modelSha256, long modelBytes, String runtime, Builder builder) throws InterruptedException {
    try {
      Files.createDirectories(folder);
      Files.delete(Files.createTempFile(folder, "writable", ""));
    } catch (IOException error) {
      throw new UserError(
          "a weight cache needs a folder that you can write to; received " + folder + "; choose another folder");
    }
    try {
      WeightCache own = new WeightCache(folder, modelSha256, runtime);
      String problem = own.problem();
      if (problem != null) {
        if (Files.exists(own.path) || Files.exists(own.record)) {
          System.err.println("weight cache " + own.path + ": " + problem + "; it is built again");
        }
        own.checkSpace(MOST_GROWTH * modelBytes + HEADER_BYTES);
        own.build(builder);
        own.isNew = true;
      }
      return own;
    } catch (IOException error) {
      throw new UserError("a weight cache needs room in its folder; " + folder + ": " + error + "; choose another folder");
    }
  }

  /** XNNPACK ends the process if the disk is full. */
  private void checkSpace(long bytes) throws IOException {
    long free = Files.getFileStore(folder).getUsableSpace();
    if (free < bytes) {
      throw new UserError(
          "a weight cache needs " + bytes + " free bytes; " + folder + " has " + free
              + "; free storage or choose another folder");
    }
  }

  /** Whether this process built it. Its memory then contains leftovers of the packing. */
  public boolean isNew() {
    return isNew;
  }

  private void build(Builder builder) throws IOException, InterruptedException {
    Path aside = Files.createTempDirectory(folder, "new");
    Path made = aside.resolve(path.getFileName());
    try {
      builder.build(made);
      if (!Files.isRegularFile(made)) {
        throw new UserError(
            "TensorFlow Lite must write a weight cache to " + folder + "; it wrote none; check the free space");
      }
      Map<String, Object> written = new LinkedHashMap<>(dependsOn);
      written.put("sha256", sha256(made));
      written.put("size_bytes", Files.size(made));
      Path madeRecord = aside.resolve(record.getFileName());
      Files.write(madeRecord, (Json.write(written) + "\n").getBytes(StandardCharsets.US_ASCII));
      // Between the two moves the record does not match, so a process that ends there leaves a cache to be rebuilt.
      Files.move(made, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
      Files.move(madeRecord, record, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(made);
      Files.deleteIfExists(aside.resolve(record.getFileName()));
      Files.delete(aside);
    }
  }

  /** Returns a reason if the cache cannot be used, otherwise null. */
  private String problem() throws IOException {
    if (!Files.isRegularFile(path) || !Files.isRegularFile(record)) {
      return "the cache or its record is missing";
    }
    Object content;
    try {
      content = Json.parse(new String(Files.readAllBytes(record), StandardCharsets.ISO_8859_1));
    } catch (JsonError error) {
      return "its record cannot be read";
    }
    if (!(content instanceof Map) || !((Map<?, ?>) content).entrySet().containsAll(dependsOn.entrySet())) {
      return "its record names another model, runtime or processor";
    }
    return sha256(path).equals(((Map<?, ?>) content).get("sha256"))
        ? null
        : "its content is not what TensorFlow Lite wrote";
  }

  private static String sha256(String text) {
    return Sha256.of(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
  }

  /** Maps the file: a cache may be larger than a phone's heap. */
  private static String sha256(Path file) throws IOException {
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
      return Sha256.of(channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size()));
    }
  }
}
