package org.pocketbert.benchmark;

import java.nio.FloatBuffer;
import java.util.List;
import java.util.Locale;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Golden;
import org.pocketbert.bundle.Recipe;
import org.pocketbert.bundle.TaskKind;
import org.pocketbert.bundle.TaskKind.Centre;

/**
 * Compares the file's recorded outputs with the float model's, as {@code pocketbert_export.checks.outputs} does: relative to
 * the root mean square of the float model's outputs, with and without the constant that the task ignores.
 *
 * <p>This check runs no network. {@link GoldenCheck} compares the runtime's outputs with the recorded ones; together
 * they compare a phone's outputs with the float model's.
 */
final class ModelCheck {
  // As in checks/outputs.py: the scale of centred scores and vectors is at least a quarter of their size.
  private static final double LEAST_SCALE = 0.25;

  private final List<Golden> goldens;
  private double largest;
  private double rootMeanSquare;

  private ModelCheck(List<Golden> goldens) {
    this.goldens = goldens;
  }

  /**
   * Compares a bundle's recorded outputs.
   *
   * @return a reason if they differ too much, otherwise null
   */
  static String problem(Bundle bundle) {
    Recipe recipe = Recipe.of(bundle.recipe());
    ModelCheck check = new ModelCheck(bundle.goldens());
    for (String output : check.goldens.get(0).outputs.keySet()) {
      TaskKind task = bundle.kindOf(output);
      if (task != null && task.hasVectors) {
        check.compareVectors(output, false);
        check.compareVectors(output, true);
        continue;
      }
      int labels = bundle.labelsOf(output);
      check.compare(output, Centre.NONE, 0, labels);
      if (task != null) {
        check.compare(output, task.centre, task.leastCentredScale, labels);
      }
    }
    if (check.largest <= recipe.largestDifference && check.rootMeanSquare <= recipe.rmsDifference) {
      return null;
    }
    return String.format(
        Locale.ROOT,
        "its recorded outputs must match the float model's; they are off by %.3g at most and %.3g on average, but only "
            + "%.3g and %.3g are allowed; export it again",
        check.largest,
        check.rootMeanSquare,
        recipe.largestDifference,
        recipe.rmsDifference);
  }

  private void compare(String output, Centre centre, double floor, int labels) {
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
      for (int i = 0; i < end; i++) {
        if (centre == Centre.EACH_ROW && i % labels == 0) {
          shift[0] = sum(reference, i, i + labels) / labels;
          shift[1] = sum(answer, i, i + labels) / labels;
        }
        double value = reference.get(i) - shift[0];
        double difference = Math.abs(answer.get(i) - shift[1] - value);
        squares += value * value;
        squaresAsTheyAre += (double) reference.get(i) * reference.get(i);
        squaredDifferences += difference * difference;
        most = Math.max(most, difference);
      }
      count += end;
    }
    double scale = Math.max(root(squares, count), floor * root(squaresAsTheyAre, count));
    largest = Math.max(largest, most / scale);
    rootMeanSquare = Math.max(rootMeanSquare, Math.sqrt(squaredDifferences / count) / scale);
  }

  /**
   * Compares vectors. Each text counts with the root mean square over its features, because one feature has no meaning
   * alone.
   *
   * @param centred whether to subtract the mean over the texts, because only differences between texts matter
   */
  private void compareVectors(String output, boolean centred) {
    int size = goldens.get(0).outputs.get(output).limit();
    double[] shift = new double[size];
    double[] answerShift = new double[size];
    for (int i = 0; centred && i < size; i++) {
      for (Golden golden : goldens) {
        shift[i] += golden.outputs.get(output).get(i) / (double) goldens.size();
        answerShift[i] += golden.exportedOutputs.get(output).get(i) / (double) goldens.size();
      }
    }
    double squares = 0;
    double squaresAsTheyAre = 0;
    double squaredDifferences = 0;
    double most = 0;
    for (Golden golden : goldens) {
      FloatBuffer reference = golden.outputs.get(output);
      FloatBuffer answer = golden.exportedOutputs.get(output);
      double ofText = 0;
      for (int i = 0; i < size; i++) {
        double value = reference.get(i) - shift[i];
        double difference = answer.get(i) - answerShift[i] - value;
        squares += value * value;
        squaresAsTheyAre += (double) reference.get(i) * reference.get(i);
        ofText += difference * difference;
      }
      squaredDifferences += ofText;
      most = Math.max(most, Math.sqrt(ofText / size));
    }
    long count = (long) size * goldens.size();
    double scale = Math.max(root(squares, count), LEAST_SCALE * root(squaresAsTheyAre, count));
    largest = Math.max(largest, most / scale);
    rootMeanSquare = Math.max(rootMeanSquare, Math.sqrt(squaredDifferences / count) / scale);
  }

  /** Root mean square; 1 if all values are 0. */
  private static double root(double squares, long count) {
    return squares == 0 ? 1 : Math.sqrt(squares / count);
  }

  /** Returns the means of the float model's and of the file's outputs. */
  private double[] means(String output) {
    double[] means = new double[2];
    long count = 0;
    for (Golden golden : goldens) {
      int end = golden.realValues(output);
      means[0] += sum(golden.outputs.get(output), 0, end);
      means[1] += sum(golden.exportedOutputs.get(output), 0, end);
      count += end;
    }
    means[0] /= count;
    means[1] /= count;
    return means;
  }

  private static double sum(FloatBuffer values, int start, int end) {
    double sum = 0;
    for (int i = start; i < end; i++) {
      sum += values.get(i);
    }
    return sum;
  }
}
