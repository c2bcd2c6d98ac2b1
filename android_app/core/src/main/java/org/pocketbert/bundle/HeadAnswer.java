package org.pocketbert.bundle;

import java.util.List;

/** What a head says about a text or a pair of texts. The fields of other kinds are null. */
public final class HeadAnswer {
  /** The answer of a head for classes, or for any number of labels. */
  public final Classification classification;

  /** Whether the classification may have any number of labels. */
  public final boolean severalLabels;

  /** The spans that a head for tags finds. */
  public final List<LabelledSpan> spans;

  /** The score of a head for regression. */
  public final Double score;

  HeadAnswer(Classification classification, boolean severalLabels, List<LabelledSpan> spans, Double score) {
    this.classification = classification;
    this.severalLabels = severalLabels;
    this.spans = spans;
    this.score = score;
  }
}
