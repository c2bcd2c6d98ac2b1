package org.pocketbert.host;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.Benchmark;
import org.pocketbert.benchmark.Configuration;
import org.pocketbert.benchmark.ResultFile;
import org.pocketbert.benchmark.Statistics;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.engine.WeightCache;
import org.pocketbert.json.Json;

/**
 * Runs the benchmark as a command, with one process per configuration in shuffled order. See {@link Arguments#HELP}.
 */
public final class Main {
  private static final long SECONDS_TO_ANSWER = 300;
  private static final int BUNDLE_ARGUMENT = 1;

  private record Job(int place, Configuration configuration, List<String> arguments) {}

  private Main() {}

  /** Exit codes: 0, 1 if a configuration failed, 2 for bad input. */
  public static void main(String[] words) throws IOException, InterruptedException {
    try {
      if (words.length > 0 && words[0].equals(Answers.COMMAND)) {
        Answers.run(List.of(words).subList(1, words.length), System.in, System.out);
        System.exit(0);
      }
      if (words.length > 0 && words[0].equals(Check.COMMAND)) {
        System.exit(Check.run(List.of(words).subList(1, words.length), System.out));
      }
      System.exit(run(new Arguments(words)));
    } catch (UserError error) {
      System.err.println(error.getMessage());
      System.exit(2);
    }
  }

  private static int run(Arguments arguments) throws IOException, InterruptedException {
    if (arguments.help) {
      System.out.print(Arguments.HELP);
      return 0;
    }
    long started = System.currentTimeMillis();
    Map<String, Object> machine = HostMachine.describe();
    List<Job> jobs = jobs(arguments);
    Map<Configuration, Path> caches = caches(arguments.weightCache, jobs);
    List<Map<String, Object>> measurements = new ArrayList<>(Collections.nCopies(jobs.size(), null));
    List<Job> order = new ArrayList<>(jobs);
    Collections.shuffle(order, new Random(0));
    for (Job job : order) {
      System.err.println("measuring " + String.join(" ", job.arguments.subList(1, job.arguments.size())));
      measurements.set(job.place, measure(job, caches.get(job.configuration)));
    }
    for (Map<String, Object> measurement : measurements) {
      if (arguments.name != null) {
        measurement.put("model", arguments.name);
      }
      measurement.put("weights", arguments.weights);
      System.out.println(line(measurement));
    }
    if (arguments.output != null) {
      List<String> notes = new ArrayList<>();
      notes.add("Measured by the Android app's Java core on a computer: same code as on a phone, other kernels.");
      jobs.stream().flatMap(job -> Benchmark.notes(job.configuration.bundle).stream()).distinct().forEach(notes::add);
      if ("random".equals(arguments.weights)) {
        notes.add("Weights are random: latency and size are meaningful, outputs are not.");
      }
      String title = "Latency of bundles, measured by the Java core";
      ResultFile.write(
          arguments.output,
          ResultFile.of(title, started, "host", machine, measurements, notes),
          arguments.overwrite);
    }
    return measurements.stream().anyMatch(measurement -> measurement.get("status").equals("failed")) ? 1 : 0;
  }

  private static List<Job> jobs(Arguments arguments) throws IOException {
    List<Job> jobs = new ArrayList<>();
    List<String> problems = new ArrayList<>();
    Map<Path, String> labels = labels(arguments.bundles);
    for (Path path : arguments.bundles) {
      try {
        Bundle bundle = Bundle.open(path);
        // Damaged goldens are refused before anything is timed.
        bundle.goldens();
        List<Integer> lengths = new ArrayList<>(arguments.lengths);
        for (int i = 0; i < bundle.lengths().length && arguments.lengths.isEmpty(); i++) {
          lengths.add(bundle.lengths()[i]);
        }
        for (int length : lengths) {
          for (int threads : arguments.threads) {
            Configuration configuration = new Configuration(labels.get(path), bundle, length, threads);
            List<String> words = List.of(labels.get(path), path.toString(), length + "", threads + "");
            jobs.add(new Job(jobs.size(), configuration, words));
          }
        }
      } catch (UserError error) {
        problems.add(error.getMessage());
      }
    }
    UserError.throwIfAny(problems, "pocketbert-host");
    return jobs;
  }

  /** Returns folder names, or the given paths if two names are equal, such as student/float32 and teacher/float32. */
  static Map<Path, String> labels(List<Path> bundles) throws IOException {
    Map<Path, String> names = new HashMap<>();
    Map<Path, String> paths = new HashMap<>();
    for (Path path : bundles) {
      names.put(path, String.valueOf(path.toRealPath().getFileName()));
      paths.put(path, path.toString());
    }
    return new HashSet<>(names.values()).size() < names.size() ? paths : names;
  }

  /**
   * Returns the verified weight cache of each job's bundle; none without a folder.
   *
   * @throws UserError if the folder cannot be written to, or a cache cannot be built
   */
  private static Map<Configuration, Path> caches(Path folder, List<Job> jobs) throws IOException, InterruptedException {
    Map<Configuration, Path> caches = new HashMap<>();
    Map<String, Path> prepared = new HashMap<>();
    for (Job job : jobs) {
      String path = job.arguments.get(BUNDLE_ARGUMENT);
      if (folder != null && !prepared.containsKey(path)) {
        Bundle bundle = Bundle.open(Path.of(path));
        long bytes = bundle.model().remaining();
        String runtime = CachingDelegate.RUNTIME;
        prepared.put(
            path,
            WeightCache.prepare(folder, bundle.modelSha256(), bytes, runtime, made -> write(path, made)).path);
      }
      caches.put(job.configuration, prepared.get(path));
    }
    return caches;
  }

  private static void write(String bundle, Path made) throws IOException, InterruptedException {
    String problem = run(CacheWriter.class, List.of(bundle, made.toString()));
    if (problem != null) {
      throw new UserError("bundle " + bundle + ": its weight cache cannot be built: " + problem);
    }
  }

  private static Map<String, Object> measure(Job job, Path cache) throws IOException, InterruptedException {
    Path answer = Files.createTempFile("measurement", ".json");
    try {
      List<String> arguments = new ArrayList<>(job.arguments);
      arguments.add(answer.toString());
      if (cache != null) {
        arguments.add(cache.toString());
      }
      String problem = run(Worker.class, arguments);
      return problem == null
          ? members(Json.parse(Files.readString(answer)))
          : Benchmark.failed(job.configuration, problem);
    } finally {
      Files.deleteIfExists(answer);
    }
  }

  /** Runs a class in its own process. Returns a reason if it fails, otherwise null. */
  private static String run(Class<?> main, List<String> arguments) throws IOException, InterruptedException {
    Path errors = Files.createTempFile("process", ".txt");
    try {
      List<String> command = new ArrayList<>();
      command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
      command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
      command.addAll(arguments);
      Process process =
          new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(errors.toFile()).start();
      if (!process.waitFor(SECONDS_TO_ANSWER, TimeUnit.SECONDS)) {
        process.destroyForcibly();
        return "the process gave no result within " + SECONDS_TO_ANSWER + " s";
      }
      return process.exitValue() == 0
          ? null
          : "the process ended with exit code " + process.exitValue() + lastWords(errors);
    } finally {
      Files.deleteIfExists(errors);
    }
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> members(Object json) {
    return (Map<String, Object>) json;
  }

  private static String lastWords(Path errors) throws IOException {
    String said = "";
    for (String line : new String(Files.readAllBytes(errors), StandardCharsets.UTF_8).split("\n")) {
      if (line.startsWith("Exception") || line.startsWith("Error") || said.isEmpty()) {
        said = line.trim();
      }
    }
    return said.isEmpty() ? "" : "; its last message: " + said.substring(0, Math.min(200, said.length()));
  }

  /** Formats a measurement for people. */
  static String line(Map<String, Object> measurement) {
    int threads = number(measurement.get("threads"));
    String name =
        measurement.get("label") + " at " + number(measurement.get("length")) + " tokens, " + threads
            + (threads == 1 ? " thread: " : " threads: ");
    if (measurement.get("status").equals("failed")) {
      return name + "failed: " + measurement.get("error");
    }
    double[] latencyUs =
        ((List<?>) measurement.get("latency_us")).stream().mapToDouble(each -> ((Number) each).doubleValue()).toArray();
    return String.format(
        Locale.ROOT,
        "%smedian %.2f ms, p90 %.2f ms, %d runs%s",
        name,
        Statistics.median(latencyUs) / 1e3,
        Statistics.percentile(latencyUs, 90) / 1e3,
        latencyUs.length,
        Boolean.FALSE.equals(measurement.get("warmed_up")) ? ", not steady" : "");
  }

  private static int number(Object value) {
    return ((Number) value).intValue();
  }
}
