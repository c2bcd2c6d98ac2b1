package org.pocketbert.device;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.Statistics;
import org.pocketbert.engine.Delegate;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;

/** A result file with one measurement, for display. */
public final class PastResult {
  private static final long MOST_BYTES = 1 << 20;

  /** The file. */
  public final Path path;

  /** Start of the run, ISO 8601 in UTC. */
  public final String created;

  /** The configuration's name. */
  public final String label;

  /** Digest of the model file. */
  public final String modelSha256;

  /** Tokens in a call. */
  public final int length;

  /** The runtime's threads. */
  public final int threads;

  /** Whether the GPU was measured. */
  public final boolean onGpu;

  /** Whether latency was not steady after the longest warm-up. */
  public final boolean isUnsteady;

  /** Why there is no number; null if there is one. */
  public final String error;

  /** Every recorded call, in order; empty if it failed. */
  public final double[] latencyUs;

  /** The median; 0 if it failed. */
  public final double medianUs;

  /** The 90th percentile; 0 if it failed. */
  public final double p90Us;

  private final Object runtime;
  private final Object affinity;
  private final boolean hasWeightCache;

  private PastResult(Path path, Map<?, ?> file, Map<?, ?> measurement) {
    this.path = path;
    created = (String) Objects.requireNonNull(file.get("created"));
    label = (String) measurement.get("label");
    modelSha256 = (String) measurement.get("model_sha256");
    length = ((Number) measurement.get("length")).intValue();
    threads = ((Number) measurement.get("threads")).intValue();
    runtime = measurement.get("runtime");
    Map<?, ?> conditions = (Map<?, ?>) measurement.get("device");
    Object chosen = conditions == null ? null : conditions.get("affinity");
    affinity = chosen == null ? RunRequest.Affinity.ANY.word() : chosen;
    hasWeightCache = measurement.get("weight_cache_bytes") != null;
    Map<?, ?> delegate = (Map<?, ?>) measurement.get("delegate");
    onGpu = delegate != null && Delegate.GPU.name().equals(delegate.get("name"));
    isUnsteady = Boolean.FALSE.equals(measurement.get("warmed_up"));
    error = (String) measurement.get("error");
    List<?> latencies = (List<?>) measurement.get("latency_us");
    latencyUs = new double[latencies.size()];
    for (int i = 0; i < latencyUs.length; i++) {
      latencyUs[i] = ((Number) latencies.get(i)).doubleValue();
    }
    if (latencyUs.length == 0 && error == null) {
      throw unreadable(path);
    }
    medianUs = latencyUs.length == 0 ? 0 : Statistics.median(latencyUs);
    p90Us = latencyUs.length == 0 ? 0 : Statistics.percentile(latencyUs, 90);
  }

  /**
   * Reads a result file.
   *
   * @throws UserError if it is missing or not a result file
   */
  public static PastResult read(Path path) {
    try {
      if (Files.size(path) <= MOST_BYTES) {
        Map<?, ?> file = (Map<?, ?>) Json.parse(new String(Files.readAllBytes(path), StandardCharsets.UTF_8));
        return new PastResult(path, file, (Map<?, ?>) ((List<?>) file.get("measurements")).get(0));
      }
    } catch (IOException | JsonError | ClassCastException | NullPointerException | IndexOutOfBoundsException error) {
      throw unreadable(path);
    }
    throw unreadable(path);
  }

  /** Reads all result files in a folder, newest first; none if the folder is missing. */
  public static List<PastResult> all(Path folder) {
    List<PastResult> results = new ArrayList<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.json")) {
      for (Path file : files) {
        try {
          results.add(read(file));
        } catch (UserError error) {
          // Skip unreadable files from elsewhere.
          continue;
        }
      }
    } catch (IOException error) {
      return results;
    }
    Collections.sort(
        results, Comparator.comparing((PastResult result) -> result.created).thenComparing(r -> r.path).reversed());
    return results;
  }

  /** Whether both have the same model file, length, threads, affinity, runtime, use of a weight cache, and CPU or GPU. */
  public boolean isComparable(PastResult other) {
    return modelSha256 != null && modelSha256.equals(other.modelSha256) && length == other.length
        && threads == other.threads && affinity.equals(other.affinity) && Objects.equals(runtime, other.runtime)
        && onGpu == other.onGpu && hasWeightCache == other.hasWeightCache;
  }

  private static UserError unreadable(Path path) {
    return new UserError(path.getFileName() + " must be a result file with a measurement; measure again");
  }
}
