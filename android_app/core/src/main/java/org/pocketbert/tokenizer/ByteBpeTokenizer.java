package org.pocketbert.tokenizer;

import java.util.Collections;
import java.util.List;

/**
 * RoBERTa's tokenizer. It equals {@code pocketbert.ByteBPETokenizer} and Hugging Face's tokenizers with {@code
 * add_prefix_space=False} and {@code trim_offsets=True}, for every Unicode version of Java or Android.
 *
 * <p>Spans exclude the white space before a token. A token for part of a character spans the character; a token with
 * only spaces has an empty span. A lone surrogate becomes U+FFFD.
 *
 * <p>Source: RoBERTa (Liu et al. 2019) and GPT-2 (Radford et al. 2019).
 */
public final class ByteBpeTokenizer extends RobertaTokenizer {
  private final ByteBpeVocabulary vocabulary;

  /**
   * Creates a tokenizer without added tokens.
   *
   * @param specialTokensInText see the other constructor
   */
  public ByteBpeTokenizer(ByteBpeVocabulary vocabulary, boolean specialTokensInText) {
    this(vocabulary, Collections.emptyList(), specialTokensInText);
  }

  /**
   * Creates a tokenizer.
   *
   * @param added tokens to find in a text before it is split
   * @param specialTokensInText whether {@code </s>} and similar strings in a text are special tokens, as in a bundle's
   *     golden examples ({@code <mask>} includes the white space before it). Pass false for untrusted text
   */
  public ByteBpeTokenizer(ByteBpeVocabulary vocabulary, List<AddedToken> added, boolean specialTokensInText) {
    super(
        AddedToken.sizeWith(vocabulary.size(), added),
        Frame.roberta(
            vocabulary.specialId(SpecialTokens.BOS),
            vocabulary.specialId(SpecialTokens.EOS),
            vocabulary.specialId(SpecialTokens.PAD)),
        new AddedTokens(
            special(
                vocabulary.specialId(SpecialTokens.BOS),
                vocabulary.specialId(SpecialTokens.PAD),
                vocabulary.specialId(SpecialTokens.EOS),
                vocabulary.specialId(SpecialTokens.UNK),
                vocabulary.specialId(SpecialTokens.MASK)),
            added,
            specialTokensInText,
            codes -> codes));
    this.vocabulary = vocabulary;
  }

  /** There is no normalization. */
  @Override
  void addNormalized(int[] text, int from, int to, AddedTokenFinder finder, TokenList tokens) {
    int start = from;
    for (AddedTokenFinder.Match match : finder.find(text, from, to)) {
      addTokens(text, start, match.start, tokens);
      add(match.token, text, match.start, match.end, null, tokens);
      start = match.end;
    }
    addTokens(text, start, to, tokens);
  }

  @Override
  void addTokens(int[] text, int from, int to, TokenList tokens) {
    for (int start = from; start < to; ) {
      int end = wordEnd(text, start, to);
      new ByteBpeWord(text, start, end, vocabulary).addTokens(tokens);
      start = end;
    }
  }

  private static boolean isSpace(int code) {
    return ByteLevelUnicode.kind(code) == ByteLevelUnicode.SPACE;
  }

  /**
   * Returns the end of the word that starts at a position, by GPT-2's pattern: {@code 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|
   * ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+}.
   */
  private static int wordEnd(int[] text, int start, int to) {
    int contraction = text[start] == '\'' ? contraction(text, start + 1, to) : 0;
    if (contraction > 0) {
      return start + 1 + contraction;
    }
    // A single space belongs to the next word.
    int first = text[start] == ' ' && start + 1 < to && !isSpace(text[start + 1]) ? start + 1 : start;
    int kind = ByteLevelUnicode.kind(text[first]);
    int end = first + 1;
    while (end < to && ByteLevelUnicode.kind(text[end]) == kind) {
      end++;
    }
    // The last of several spaces belongs to the next word.
    return kind == ByteLevelUnicode.SPACE && end < to && end - start > 1 ? end - 1 : end;
  }

  /** Returns the number of letters in an English contraction's ending, or 0. */
  private static int contraction(int[] text, int place, int to) {
    int first = place < to ? text[place] : 0;
    int second = place + 1 < to ? text[place + 1] : 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
      return 1;
    }
    boolean two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? 2 : 0;
  }
}
