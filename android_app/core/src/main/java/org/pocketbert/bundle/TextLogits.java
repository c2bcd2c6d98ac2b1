package org.pocketbert.bundle;

import java.util.Arrays;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.Tokenizer;

/** The logits of a text or a pair; the network reads both texts of a pair together or apart. */
final class TextLogits {
  /** The output that the network, or the head on two vectors, must return. */
  static final String OUTPUT = "logits";

  /** What the logits mean. */
  final TaskHead head;

  private final Network network;
  private final Tokenizer tokenizer;
  private final int[] lengths;
  // Null if the network reads both texts together.
  private final SeparatePairs pairs;

  /**
   * Creates a reader of texts.
   *
   * @param needs what needs one of these kinds of tasks, for the message
   * @throws UserError if the bundle has another task, or reads pairs apart and the network is no {@link PairNetwork}
   */
  TextLogits(Bundle bundle, Network network, String needs, String... kinds) {
    if (!Arrays.asList(kinds).contains(bundle.answerKind())) {
      throw new UserError(
          needs + " need a bundle for " + String.join(" or ", kinds) + "; " + bundle.name() + " is for "
              + bundle.answerKind());
    }
    if (bundle.hasPairs() && !(network instanceof PairNetwork)) {
      throw new UserError(
          bundle.name() + " needs a network for both of its files; received one for texts alone; pass BundleEngines");
    }
    head = bundle.hasPairs() ? bundle.pairs() : bundle.task();
    this.network = network;
    tokenizer = bundle.tokenizer();
    lengths = bundle.lengths();
    pairs = bundle.hasPairs() ? new SeparatePairs(bundle, (PairNetwork) network) : null;
  }

  /**
   * Returns the logits.
   *
   * @param pair the second text, or null
   * @throws UserError if an output is missing or not finite, the text is null, or a pair to be read apart has one text
   */
  float[] of(String text, String pair) {
    if (pairs != null) {
      return pairs.logits(text, pair);
    }
    return TaskNetwork.checked(network.run(tokenizer.encode(TaskNetwork.text(text), pair, lengths)), OUTPUT);
  }
}
