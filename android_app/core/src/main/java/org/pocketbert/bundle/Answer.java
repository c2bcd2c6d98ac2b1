package org.pocketbert.bundle;

import java.util.Collections;
import java.util.List;

/** A part of a paragraph that answers a question. */
public final class Answer {
  /** The part of the paragraph; empty if there is no answer. */
  public final String text;

  /** Offset of its first code point; -1 if there is no answer. */
  public final int start;

  /**
   * Offset after its last code point; -1 if there is no answer. For an index into a Java string, use {@link
   * String#offsetByCodePoints}.
   */
  public final int end;

  /** Sum of the logits of start and end; without an answer, of the empty answer. */
  public final double score;

  /** Probability among the best answers and, if questions can be unanswerable, the empty answer. */
  public final double probability;

  /** The best answers with different texts, best first, without the empty one; empty in the answers of this list. */
  public final List<Answer> best;

  Answer(String text, int start, int end, double score, double probability, List<Answer> best) {
    this.text = text;
    this.start = start;
    this.end = end;
    this.score = score;
    this.probability = probability;
    this.best = Collections.unmodifiableList(best);
  }
}
