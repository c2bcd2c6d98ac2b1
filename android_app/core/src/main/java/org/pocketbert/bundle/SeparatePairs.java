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
    boolean hasLabels = !SeveralHeads.SCORES.equals(head.kind);
    classifier = hasLabels ? new TextClassifier(bundle.tokenizer(), bundle.lengths(), head, null) : null;
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
    if (first.length != second.length) {
      throw new UserError(
          "the vectors of a pair must have one size; received " + first.length + " and " + second.length);
    }
    float[] logits = TaskNetwork.checked(network.runHead(first, second), TextClassifier.OUTPUT);
    if (classifier != null) {
      return new HeadAnswer(classifier.classification(logits), severalLabels, null, null);
    }
    if (logits.length != 1) {
      throw new UserError("a network must return a score; received " + logits.length + " numbers");
    }
    return new HeadAnswer(null, false, null, (double) logits[0]);
  }

  /** Answers a pair of texts. */
  public HeadAnswer predict(String first, String second) {
    return answer(vector(first), vector(second));
  }
}
