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

  /** Returns the number of special tokens around one or two texts. */
  public final int specialTokens(boolean pair) {
    return frame.specialTokens(pair);
  }

  /**
   * Encodes one text's tokens with special tokens.
   *
   * @param tokens the result of {@link #tokenize}
   * @param most how many tokens are kept of a longer text
   * @param lengths the network's lengths, ascending. The result has the shortest one that fits
   * @throws UserError if the longest is too short
   */
  public final ModelInputs cut(Tokens tokens, int most, int... lengths) {
    return fitted(truncation.cut(tokens.ids, Math.min(tokens.ids.length, most), false), null, lengths);
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
    return fitted(Arrays.copyOfRange(tokens.ids, begin, end), null, lengths);
  }

  /**
   * Encodes a part of a second text's tokens behind a first text, such as a question, with special tokens.
   *
   * @param first ids of the first text's tokens
   * @param tokens the second text's result of {@link #tokenize}
   * @param begin the part's first token
   * @param end the token after the part
   * @param lengths the network's lengths, ascending. The result has the shortest one that fits
   * @throws UserError if the longest is too short
   */
  public final ModelInputs window(int[] first, Tokens tokens, int begin, int end, int... lengths) {
    return fitted(first, Arrays.copyOfRange(tokens.ids, begin, end), lengths);
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
    int available = lengths[lengths.length - 1] - specials;
    int[] counts = truncation.lengths(first.length, second.length, pair != null, available);
    return fitted(
        truncation.cut(first, counts[0], pair != null),
        pair == null ? null : truncation.cut(second, counts[1], true),
        lengths);
  }

  /** Puts one or two texts between special tokens, at the shortest length that fits. */
  private ModelInputs fitted(int[] first, int[] second, int... lengths) {
    int count = first.length + (second == null ? 0 : second.length) + frame.specialTokens(second != null);
    for (int length : lengths) {
      if (length >= count) {
        return framed(first, second, length);
      }
    }
    throw new UserError("a length must have room for " + count + " tokens; received " + Arrays.toString(lengths));
  }

  private ModelInputs framed(int[] first, int[] second, int length) {
    ModelInputs inputs = new ModelInputs(length);
    Arrays.fill(inputs.wordIds, frame.pad);
    inputs.wordIds[0] = frame.first;
    System.arraycopy(first, 0, inputs.wordIds, 1, first.length);
    int end = first.length + 1;
    if (second != null) {
      Arrays.fill(inputs.wordIds, end, end + frame.separators, frame.last);
      end += frame.separators;
      System.arraycopy(second, 0, inputs.wordIds, end, second.length);
      Arrays.fill(inputs.typeIds, end, end + second.length + 1, frame.secondType);
      end += second.length;
    }
    inputs.wordIds[end++] = frame.last;
    Arrays.fill(inputs.mask, 0, end, 1);
    return inputs;
  }
}
