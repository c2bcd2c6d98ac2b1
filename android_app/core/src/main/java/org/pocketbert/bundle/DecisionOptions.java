package org.pocketbert.bundle;

import java.util.List;

/** Thresholds of answers, from bundle.json: the fields of {@code DecisionConfig} in Python. */
final class DecisionOptions {
  private static final double SAME = 1e-9;

  /** Least probability of each label, in the order of the logits; null for the default. */
  final double[] thresholds;

  /** Least highest probability of an answer; null if all answers count. */
  final Double rejectBelow;

  /** Reads and checks both fields; one of them is null. */
  DecisionOptions(Fields fields, String kind, int labels, List<String> problems) {
    thresholds = fields.numbersOrNull("thresholds");
    rejectBelow = fields.doubleOrNull("reject_below");
    fields.close();
    boolean several = TextClassifier.LABELS.equals(kind);
    if (!several && !TextClassifier.CLASSES.equals(kind)) {
      problems.add("$.task.decisions are for classification and multi_label");
      return;
    }
    if ((thresholds == null) == (rejectBelow == null)) {
      problems.add("$.task.decisions must have thresholds or reject_below, and null for the other");
    }
    if (rejectBelow != null && (several || !(rejectBelow >= 0 && rejectBelow <= 1))) {
      problems.add("$.task.decisions.reject_below must lie in [0, 1], for one of several classes");
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
      problems.add("$.task.decisions.thresholds must hold a number between 0 and 1 for each of " + labels + " labels");
    } else if (!several && (labels != 2 || Math.abs(sum - 1) > SAME)) {
      problems.add("$.task.decisions.thresholds must be for several labels, or sum to 1 for two classes");
    }
  }
}
