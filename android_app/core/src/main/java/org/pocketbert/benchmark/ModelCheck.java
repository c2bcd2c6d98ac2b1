package org.pocketbert.benchmark;

import java.nio.FloatBuffer;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Golden;

/**
 * How far the file's recorded answers lie from the float model's, measured as {@code pocketbert_export.checks} does: as a
 * part of the root mean square of the float model's, as they are and without the constant that means nothing.
 *
 * <p>Nothing runs. Together with {@link GoldenCheck}, which compares the runtime's answers with the recorded ones, it
 * holds a phone's answers to the float model.
 */
final class ModelCheck {
  // Largest and root mean square difference, as in pocketbert_export.checks.BOUNDS, where they are derived.
  private static final Map<String, double[]> BOUNDS = bounds();

  private final List<Golden> goldens;
  private double largest;
  private double rootMeanSquare;

  private static Map<String, double[]> bounds() {
    Map<String, double[]> bounds = new HashMap<>();
    bounds.put("float32", new double[] {1e-4, 2.5e-5});
    bounds.put("float16", new double[] {1e-2, 3e-3});
    bounds.put("dynamic_wi8", new double[] {0.6, 0.15});
    return Collections.unmodifiableMap(bounds);
  }

  private ModelCheck(List<Golden> goldens) {
    this.goldens = goldens;
  }

  /**
   * Compares.
   *
   * @return a sentence if the answers lie too far apart, else null
   */
  static String problem(Bundle bundle) {
    double[] most = BOUNDS.get(bundle.recipe());
    ModelCheck check = new ModelCheck(bundle.goldens());
    for (String output : check.goldens.get(0).outputs.keySet()) {
      check.compare(output, Centre.NONE, 0);
      // Scores that vary less than a quarter of their size are held against that quarter, as in checks.py.
      check.compare(output, Centre.of(bundle.taskKind()), "regression".equals(bundle.taskKind()) ? 0.25 : 0);
    }
    if (check.largest <= most[0] && check.rootMeanSquare <= most[1]) {
      return null;
    }
    return String.format(
        Locale.ROOT,
        "its recorded answers are not the float model's: they are off by %.3g at most and %.3g on average, %.3g and %.3g "
            + "being allowed; export it again",
        check.largest,
        check.rootMeanSquare,
        most[0],
        most[1]);
  }

  /** What is subtracted of answers first: softmax ignores a constant in a text's logits, an order one in all. */
  private enum Centre {
    NONE,
    EACH_ROW,
    ALL;

    static Centre of(String taskKind) {
      if ("classification".equals(taskKind)) {
        return EACH_ROW;
      }
      return "regression".equals(taskKind) || "span".equals(taskKind) ? ALL : NONE;
    }
  }

  private void compare(String output, Centre centre, double floor) {
    double[] shift = centre == Centre.ALL ? means(output) : new double[2];
    double squares = 0;
    double squaresAsTheyAre = 0;
    double squaredDifferences = 0;
    double most = 0;
    long count = 0;
    for (Golden golden : goldens) {
      FloatBuffer reference = golden.outputs.get(output);
      FloatBuffer answer = golden.exportedOutputs.get(output);
      int end = golden.realValues(output);
      if (centre == Centre.EACH_ROW) {
        shift[0] = sum(reference, end) / end;
        shift[1] = sum(answer, end) / end;
      }
      for (int i = 0; i < end; i++) {
        double value = reference.get(i) - shift[0];
        double difference = Math.abs(answer.get(i) - shift[1] - value);
        squares += value * value;
        squaresAsTheyAre += (double) reference.get(i) * reference.get(i);
        squaredDifferences += difference * difference;
        most = Math.max(most, difference);
      }
      count += end;
    }
    double scale = squares == 0 ? 1 : Math.sqrt(squares / count);
    scale = Math.max(scale, floor * Math.sqrt(squaresAsTheyAre / count));
    largest = Math.max(largest, most / scale);
    rootMeanSquare = Math.max(rootMeanSquare, Math.sqrt(squaredDifferences / count) / scale);
  }

  /** Of all the float model's answers, and of all the file's. */
  private double[] means(String output) {
    double[] means = new double[2];
    long count = 0;
    for (Golden golden : goldens) {
      int end = golden.realValues(output);
      means[0] += sum(golden.outputs.get(output), end);
      means[1] += sum(golden.exportedOutputs.get(output), end);
      count += end;
    }
    means[0] /= count;
    means[1] /= count;
    return means;
  }

  private static double sum(FloatBuffer values, int end) {
    double sum = 0;
    for (int i = 0; i < end; i++) {
      sum += values.get(i);
    }
    return sum;
  }
}
