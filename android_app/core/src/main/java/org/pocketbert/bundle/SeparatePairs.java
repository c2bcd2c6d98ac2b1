package org.pocketbert.bundle;

import org.pocketbert.UserError;

/**
 * Answers pairs of texts that the encoder reads one by one, as {@code pocketbert predict} does: one of several classes,
 * any number of labels, or a score.
 *
 * <p>Keep the vectors of your documents: {@link #answer} then needs no encoder for them. Longer texts than the bundle's
 * longest length are truncated. It is thread-safe if the network is.
 */
public final class SeparatePairs {
  /** The signature of the head's file. */
  public static final String HEAD = "head";

  /** The input of the head with the vector of the first text. */
  public static final String FIRST = "first";

  /** The input of the head with the vector of the second text. */
  public static final String SECOND = "second";

  private final PairNetwork network;
  private final SentenceEmbedder embedder;
  private final boolean severalLabels;
  // Null for scores.
  private final TextClassifier classifier;

  /**
   * Creates a reader of pairs.
   *
   * @throws UserError if the bundle is not for separate pairs
   */
  public SeparatePairs(Bundle bundle, PairNetwork network) {
    this.network = network;
    TaskHead head = bundle.pairs();
    embedder = new SentenceEmbedder(bundle, network);
    severalLabels = TextClassifier.LABELS.equals(head.kind);
    classifier = Scorer.KIND.equals(head.kind) ? null : new TextClassifier(null, head);
  }

  /** Returns the vector of a text. */
  public float[] vector(String text) {
    return embedder.embed(text);
  }

  /**
   * Answers a pair of texts from their vectors. Their order matters.
   *
   * @throws UserError if the vectors have different sizes, or an output is missing or not finite
   */
  public HeadAnswer answer(float[] first, float[] second) {
    return answer(logits(first, second));
  }

  private HeadAnswer answer(float[] logits) {
    return classifier == null
        ? new HeadAnswer(null, false, null, Scorer.score(logits))
        : new HeadAnswer(classifier.classification(logits), severalLabels, null, null);
  }

  private float[] logits(float[] first, float[] second) {
    if (first.length != second.length) {
      throw new UserError(
          "the vectors of a pair must have one size; received " + first.length + " and " + second.length);
    }
    return TaskNetwork.checked(network.runHead(first, second), TextLogits.OUTPUT);
  }

  /**
   * Returns the head's output for a pair of texts.
   *
   * @throws UserError if the second text is null
   */
  float[] logits(String first, String second) {
    if (second == null) {
      throw new UserError("a network for separate pairs reads pairs of texts; received one text; pass the second text");
    }
    return logits(vector(first), vector(second));
  }

  /** Answers a pair of texts. */
  public HeadAnswer predict(String first, String second) {
    return answer(logits(first, second));
  }
}
