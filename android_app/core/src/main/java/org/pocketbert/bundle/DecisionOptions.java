package org.pocketbert.bundle;

import java.util.List;

/** Thresholds of answers, from bundle.json: the fields of {@code DecisionConfig} in Python. */
final class DecisionOptions {
  private static final double SAME = 1e-9;

  /** Least probability of each label, in the order of the logits; null for the default. */
  final double[] thresholds;

  /** Least highest probability of an answer; null if all answers count. */
  final Double rejectBelow;

  /**
   * Reads and checks both fields; one of them is null.
   *
   * @param path name of the fields in messages
   */
  DecisionOptions(Fields fields, String path, String kind, int labels, List<String> problems) {
    thresholds = fields.numbersOrNull("thresholds");
    rejectBelow = fields.doubleOrNull("reject_below");
    fields.close();
    boolean several = TextClassifier.LABELS.equals(kind);
    if (!several && !TextClassifier.CLASSES.equals(kind)) {
      problems.add(path + " are for classification and multi_label");
      return;
    }
    if ((thresholds == null) == (rejectBelow == null)) {
      problems.add(path + " must have thresholds or reject_below, and null for the other");
    }
    if (rejectBelow != null && (several || !(rejectBelow >= 0 && rejectBelow <= 1))) {
      problems.add(path + ".reject_below must lie in [0, 1], for one of several classes");
    }
    if (thresholds == null) {
      return;
    }
    double sum = 0;
    boolean inside = true;
    for (double threshold : thresholds) {
      inside &= threshold > 0 && threshold < 1;
      sum += threshold;
    }
    if (!inside || thresholds.length != labels) {
      problems.add(path + ".thresholds must hold a number between 0 and 1 for each of " + labels + " labels");
    } else if (!several && (labels != 2 || Math.abs(sum - 1) > SAME)) {
      problems.add(path + ".thresholds must be for several labels, or sum to 1 for two classes");
    }
  }
}
