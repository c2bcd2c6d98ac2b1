package org.pocketbert.tokenizer;

import java.util.Arrays;
import org.pocketbert.UserError;

/**
 * Turns texts into a network's inputs: {@link WordPieceTokenizer}, {@link ByteBpeTokenizer} or {@link
 * UnigramTokenizer}. Tokenizers are thread-safe.
 */
public abstract class Tokenizer {
  private final int vocabSize;
  private final Frame frame;
  private final Truncation truncation;

  Tokenizer(int vocabSize, Frame frame) {
    this.vocabSize = vocabSize;
    this.frame = frame;
    truncation = Truncation.HEAD;
  }

  Tokenizer(Tokenizer other, Truncation truncation) {
    vocabSize = other.vocabSize;
    frame = other.frame;
    this.truncation = truncation;
  }

  /** Creates a tokenizer of positions, whose special tokens have position 0. */
  Tokenizer(Tokenizer other) {
    vocabSize = other.vocabSize;
    frame = new Frame(0, 0, 0, other.frame.separators, other.frame.secondType);
    truncation = other.truncation;
  }

  /** Returns a tokenizer with the same tokens that cuts long texts in another way. */
  public final Tokenizer cutting(Truncation truncation) {
    return new CutTokenizer(this, truncation);
  }

  /** Returns the number of ids, including special tokens. */
  public final int vocabSize() {
    return vocabSize;
  }

  /** Returns the id of padding. */
  public final int padId() {
    return frame.pad;
  }

  /** Returns all tokens with their offsets, without special tokens or truncation. */
  public abstract Tokens tokenize(String text);

  /**
   * Encodes one text's tokens with special tokens.
   *
   * @param tokens the result of {@link #tokenize}
   * @param most how many tokens are kept of a longer text
   * @param lengths the network's lengths, ascending. The result has the shortest one that fits
   * @throws UserError if the longest is too short
   */
  public final ModelInputs cut(Tokens tokens, int most, int... lengths) {
    int kept = Math.min(tokens.ids.length, most);
    ModelInputs inputs = window(tokens, 0, kept, lengths);
    truncation.copy(tokens.ids, kept, false, inputs.wordIds, 1);
    return inputs;
  }

  /**
   * Encodes a part of a text's tokens with special tokens, for texts that are read in windows.
   *
   * @param tokens the result of {@link #tokenize}
   * @param begin the part's first token
   * @param end the token after the part
   * @param lengths the network's lengths, ascending. The result has the shortest one that fits
   * @throws UserError if the longest is too short
   */
  public final ModelInputs window(Tokens tokens, int begin, int end, int... lengths) {
    int specials = frame.specialTokens(false);
    for (int length : lengths) {
      if (length >= end - begin + specials) {
        ModelInputs inputs = new ModelInputs(length);
        Arrays.fill(inputs.wordIds, frame.pad);
        inputs.wordIds[0] = frame.first;
        System.arraycopy(tokens.ids, begin, inputs.wordIds, 1, end - begin);
        inputs.wordIds[end - begin + 1] = frame.last;
        Arrays.fill(inputs.mask, 0, end - begin + specials, 1);
        return inputs;
      }
    }
    throw new UserError(
        "a length must have room for " + (end - begin + specials) + " tokens; received " + Arrays.toString(lengths));
  }

  /**
   * Encodes one or two texts with special tokens: BERT's {@code [CLS] text [SEP] pair [SEP]}, RoBERTa's and XLM-R's
   * {@code <s> text </s></s> pair </s>}.
   *
   * @param pair the second text, or null
   * @param lengths the network's lengths, ascending. The result has the shortest one that fits all tokens. Longer texts
   *     are cut as {@link #cutting} says: by default at the end; in pairs, the longer text first
   * @throws UserError if there is no length, or one is too short for the special tokens
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
    int[] kept = truncation.lengths(first.length, second.length, pair != null, lengths[slot] - specials);
    int firstLength = kept[0];
    int secondLength = kept[1];
    ModelInputs inputs = new ModelInputs(lengths[slot]);
    Arrays.fill(inputs.wordIds, frame.pad);
    inputs.wordIds[0] = frame.first;
    truncation.copy(first, firstLength, pair != null, inputs.wordIds, 1);
    int end = firstLength + 1;
    if (pair != null) {
      Arrays.fill(inputs.wordIds, end, end + frame.separators, frame.last);
      end += frame.separators;
      truncation.copy(second, secondLength, true, inputs.wordIds, end);
      Arrays.fill(inputs.typeIds, end, end + secondLength + 1, frame.secondType);
      end += secondLength;
    }
    inputs.wordIds[end++] = frame.last;
    Arrays.fill(inputs.mask, 0, end, 1);
    return inputs;
  }
}
