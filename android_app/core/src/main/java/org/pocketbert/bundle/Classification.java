package org.pocketbert.bundle;

import java.util.Collections;
import java.util.List;
import java.util.Map;

/** What {@link TextClassifier} says about a text. */
public final class Classification {
  /** The class of a text; null if it is rejected because it is too uncertain, and for several labels. */
  public final String label;

  /** The labels of the text; for one of several classes, the class if there is one. */
  public final List<String> labels;

  /** Label to probability, in the order of the logits. */
  public final Map<String, Double> probabilities;

  Classification(String label, List<String> labels, Map<String, Double> probabilities) {
    this.label = label;
    this.labels = Collections.unmodifiableList(labels);
    this.probabilities = Collections.unmodifiableMap(probabilities);
  }
}
