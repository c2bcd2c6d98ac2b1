package org.pocketbert.bundle;

import org.pocketbert.UserError;

/**
 * Scores texts and pairs of texts, as {@code pocketbert predict} does: regression, and rerankers of a query and a
 * document.
 *
 * <p>With a bundle for separate pairs, pass a {@link PairNetwork} and two texts. It is thread-safe if the network is.
 */
public final class Scorer {
  /** The output that the network must return: one number. */
  public static final String OUTPUT = TextLogits.OUTPUT;

  static final String KIND = "regression";

  private final TextLogits logits;

  /**
   * Creates a scorer.
   *
   * @throws UserError if the bundle has another task
   */
  public Scorer(Bundle bundle, Network network) {
    logits = new TextLogits(bundle, network, "scores", KIND);
  }

  /** Scores a text. Longer texts than the bundle's longest length are truncated. */
  public double score(String text) {
    return score(text, null);
  }

  /**
   * Scores a pair of texts. Their order matters.
   *
   * @param pair the second text, or null
   * @throws UserError if an output is missing or not finite, the text is null, or a pair to be read apart has one text
   */
  public double score(String text, String pair) {
    return score(logits.of(text, pair));
  }

  /** The score in a network's output. */
  static double score(float[] logits) {
    if (logits.length != 1) {
      throw new UserError("a network must return a score; received " + logits.length + " numbers");
    }
    return logits[0];
  }
}
