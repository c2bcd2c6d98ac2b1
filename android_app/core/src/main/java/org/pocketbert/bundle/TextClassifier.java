package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;

/**
 * Labels texts and pairs of texts, as {@code pocketbert predict} does: one of several classes, or any number of labels.
 *
 * <p>The thresholds in bundle.json apply: those of two classes or several labels, and the one below which a text has no
 * class. With a bundle for separate pairs, pass a {@link PairNetwork} and two texts. It is thread-safe if the network
 * is.
 */
public final class TextClassifier {
  /** The output that the network must return: one number per label. */
  public static final String OUTPUT = TextLogits.OUTPUT;

  static final String CLASSES = "classification";
  static final String LABELS = "multi_label";

  private final TextLogits logits;
  private final List<String> names;
  private final boolean several;
  // What to subtract from each logit; then the largest one is the class, and labels have at least 0.
  private final double[] thresholds;
  private final double rejectBelow;

  /**
   * Creates a classifier.
   *
   * @throws UserError if the bundle has another task
   */
  public TextClassifier(Bundle bundle, Network network) {
    this(new TextLogits(bundle, network, "labels", CLASSES, LABELS));
  }

  private TextClassifier(TextLogits logits) {
    this(logits, logits.head);
  }

  /** A classifier with the labels and thresholds of a head; without logits, it knows {@link #classification}. */
  TextClassifier(TextLogits logits, TaskHead head) {
    several = LABELS.equals(head.kind);
    this.logits = logits;
    names = head.labels();
    thresholds = new double[names.size()];
    DecisionOptions decisions = head.decisions;
    if (decisions != null && decisions.thresholds != null) {
      for (int i = 0; i < thresholds.length; i++) {
        double threshold = decisions.thresholds[i];
        thresholds[i] = several ? Math.log(threshold) - Math.log1p(-threshold) : Math.log(threshold);
      }
    }
    rejectBelow = decisions == null || decisions.rejectBelow == null ? 0 : decisions.rejectBelow;
  }

  /** Labels a text. Longer texts than the bundle's longest length are truncated. */
  public Classification classify(String text) {
    return classify(text, null);
  }

  /**
   * Labels a pair of texts.
   *
   * @param pair the second text, or null
   */
  public Classification classify(String text, String pair) {
    return classification(logits.of(text, pair));
  }

  /** The answer for the logits of a text. */
  Classification classification(float[] logits) {
    if (logits.length != names.size()) {
      throw new UserError("a network must return " + names.size() + " " + OUTPUT + "; received " + logits.length);
    }
    double[] probabilities = several ? sigmoid(logits) : softmax(logits);
    Map<String, Double> byLabel = new LinkedHashMap<>();
    List<String> labels = new ArrayList<>();
    int best = 0;
    double highest = 0;
    for (int i = 0; i < logits.length; i++) {
      byLabel.put(names.get(i), probabilities[i]);
      highest = Math.max(highest, probabilities[i]);
      if (several && logits[i] - thresholds[i] >= 0) {
        labels.add(names.get(i));
      }
      best = logits[i] - thresholds[i] > logits[best] - thresholds[best] ? i : best;
    }
    if (several) {
      return new Classification(null, labels, byLabel);
    }
    String label = highest < rejectBelow ? null : names.get(best);
    if (label != null) {
      labels.add(label);
    }
    return new Classification(label, labels, byLabel);
  }

  private static double[] softmax(float[] logits) {
    double largest = Double.NEGATIVE_INFINITY;
    for (float logit : logits) {
      largest = Math.max(largest, logit);
    }
    double[] values = new double[logits.length];
    double sum = 0;
    for (int i = 0; i < values.length; i++) {
      values[i] = Math.exp(logits[i] - largest);
      sum += values[i];
    }
    for (int i = 0; i < values.length; i++) {
      values[i] /= sum;
    }
    return values;
  }

  private static double[] sigmoid(float[] logits) {
    double[] values = new double[logits.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = 1 / (1 + Math.exp(-(double) logits[i]));
    }
    return values;
  }
}
