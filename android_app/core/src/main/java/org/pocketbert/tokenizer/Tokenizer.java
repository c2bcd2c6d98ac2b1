package org.pocketbert.tokenizer;

import java.util.Arrays;
import org.pocketbert.UserError;

/**
 * Turns texts into what a network is fed with: {@link WordPieceTokenizer}, {@link ByteBpeTokenizer} or {@link
 * UnigramTokenizer}. An object may be used by several threads at once.
 */
public abstract class Tokenizer {
  private final int vocabSize;
  private final Frame frame;

  Tokenizer(int vocabSize, Frame frame) {
    this.vocabSize = vocabSize;
    this.frame = frame;
  }

  /** How many ids there are, special tokens included. */
  public final int vocabSize() {
    return vocabSize;
  }

  /** The id that fills up. */
  public final int padId() {
    return frame.pad;
  }

  /** Tokens without special tokens, with their offsets; nothing is cut off. */
  public abstract Tokens tokenize(String text);

  /**
   * One text or two with special tokens: BERT's {@code [CLS] text [SEP] pair [SEP]}, RoBERTa's and XLM-R's {@code <s>
   * text </s></s> pair </s>}.
   *
   * @param pair the second text, or null
   * @param lengths what the network can be called with, ascending: the shortest one that holds all tokens is taken;
   *     what is over the longest one is cut off at the end, of pairs from the longer text first
   * @throws UserError if there is no length, or one has no room for the special tokens
   */
  public final ModelInputs encode(String text, String pair, int... lengths) {
    int specials = frame.specialTokens(pair != null);
    if (lengths.length == 0 || lengths[0] < specials) {
      throw new UserError(
          "a length must have room for " + specials + " special tokens; received " + Arrays.toString(lengths));
    }
    int[] first = tokenize(text).ids;
    int[] second = pair == null ? new int[0] : tokenize(pair).ids;
    int slot = 0;
    while (slot < lengths.length - 1 && lengths[slot] < first.length + second.length + specials) {
      slot++;
    }
    int available = lengths[slot] - specials;
    int firstLength = first.length;
    int secondLength = second.length;
    if (firstLength + secondLength > available) {
      // As transformers' longest_first: if both must give, each gets half, and the longer one the odd place.
      int shorter = pair == null ? 0 : Math.min(Math.min(firstLength, secondLength), available / 2);
      boolean firstIsLonger = firstLength > secondLength || pair == null;
      firstLength = firstIsLonger ? available - shorter : shorter;
      secondLength = firstIsLonger ? shorter : available - shorter;
    }
    ModelInputs inputs = new ModelInputs(lengths[slot]);
    Arrays.fill(inputs.wordIds, frame.pad);
    inputs.wordIds[0] = frame.first;
    System.arraycopy(first, 0, inputs.wordIds, 1, firstLength);
    int end = firstLength + 1;
    if (pair != null) {
      Arrays.fill(inputs.wordIds, end, end + frame.separators, frame.last);
      end += frame.separators;
      System.arraycopy(second, 0, inputs.wordIds, end, secondLength);
      Arrays.fill(inputs.typeIds, end, end + secondLength + 1, frame.secondType);
      end += secondLength;
    }
    inputs.wordIds[end++] = frame.last;
    Arrays.fill(inputs.mask, 0, end, 1);
    return inputs;
  }
}
