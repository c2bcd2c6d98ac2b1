package org.pocketbert.benchmark;

import java.nio.FloatBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.pocketbert.bundle.Golden;
import org.pocketbert.bundle.Recipe;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.EngineException;

/** Correctness before timing: a file must reproduce its golden outputs from export. */
final class GoldenCheck {
  // The GPU rounds to 11 bits, by at most 2^-11 = 0.05 %. This allows a hundred roundings in one direction.
  private static final double GPU_TOLERANCE = 0.05;
  // Stands for NaN and infinity, which JSON lacks.
  private static final double NOT_A_NUMBER = 1e30;

  private final int examples;
  private final double tolerance;
  private double largestDifference;

  /** Creates a check with the recipe's tolerance. */
  GoldenCheck(List<Golden> goldens, String recipe, Delegate delegate) {
    double relative = Recipe.of(recipe).ownDifference;
    double largest = 0;
    for (Golden golden : goldens) {
      largest = Math.max(largest, golden.largestOutput());
    }
    examples = goldens.size();
    tolerance = largest * (delegate == Delegate.GPU ? Math.max(relative, GPU_TOLERANCE) : relative);
  }

  /**
   * Runs the examples.
   *
   * @throws EngineException if outputs have other names or sizes
   */
  void run(Engine engine, List<Golden> goldens) {
    for (Golden golden : goldens) {
      Map<String, float[]> outputs = engine.run(golden.inputs);
      if (!outputs.keySet().equals(golden.exportedOutputs.keySet())) {
        throw new EngineException(
            "the outputs must be " + golden.exportedOutputs.keySet() + "; received " + outputs.keySet());
      }
      for (Map.Entry<String, FloatBuffer> known : golden.exportedOutputs.entrySet()) {
        compare(known.getKey(), known.getValue(), outputs.get(known.getKey()));
      }
    }
  }

  /** Returns a reason if an output is off by more than the tolerance, otherwise null. */
  String problem() {
    if (largestDifference <= tolerance) {
      return null;
    }
    return String.format(
        Locale.ROOT,
        "its outputs must be those recorded at export; an output is off by %.3g, but only %.3g is allowed; "
            + "export it again",
        largestDifference,
        tolerance);
  }

  Map<String, Object> toJson() {
    Map<String, Object> json = new LinkedHashMap<>();
    json.put("examples", examples);
    json.put("max_absolute_difference", largestDifference);
    json.put("tolerance", tolerance);
    return json;
  }

  private void compare(String name, FloatBuffer known, float[] answer) {
    if (answer.length != known.limit()) {
      throw new EngineException(name + " must have " + known.limit() + " values; received " + answer.length);
    }
    for (int i = 0; i < answer.length; i++) {
      double difference = Math.abs((double) answer[i] - known.get(i));
      boolean isNumber = !Double.isNaN(difference) && !Double.isInfinite(difference);
      largestDifference = Math.max(largestDifference, isNumber ? difference : NOT_A_NUMBER);
    }
  }
}
