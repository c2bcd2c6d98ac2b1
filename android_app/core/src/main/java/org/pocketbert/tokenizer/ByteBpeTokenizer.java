package org.pocketbert.tokenizer;

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
   * Creates a tokenizer.
   *
   * @param specialTokensInText whether {@code </s>} and similar strings in a text are special tokens, as in a bundle's
   *     golden examples ({@code <mask>} includes the white space before it). Pass false for untrusted text
   */
  public ByteBpeTokenizer(ByteBpeVocabulary vocabulary, boolean specialTokensInText) {
    super(
        vocabulary.size(),
        Frame.roberta(
            vocabulary.specialId(SpecialTokens.BOS),
            vocabulary.specialId(SpecialTokens.EOS),
            vocabulary.specialId(SpecialTokens.PAD)),
        specialTokensInText);
    this.vocabulary = vocabulary;
  }

  @Override
  int specialId(String token) {
    return vocabulary.specialId(token);
  }

  @Override
  int endBefore(String token, int[] text, int from, int to) {
    int end = to;
    while (token.equals(SpecialTokens.MASK) && end > from && isSpace(text[end - 1])) {
      end--;
    }
    return end;
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
