package org.pocketbert.tokenizer;

/** Shared code of byte-level BPE and unigram: any text is valid, and special tokens divide it. */
abstract class RobertaTokenizer extends Tokenizer {
  private static final int REPLACEMENT = 0xFFFD;
  private final boolean specialTokensInText;

  RobertaTokenizer(int vocabSize, Frame frame, boolean specialTokensInText) {
    super(vocabSize, frame);
    this.specialTokensInText = specialTokensInText;
  }

  /** Returns the id of one of {@link SpecialTokens#ALL}. */
  abstract int specialId(String token);

  /**
   * Adds the tokens of a part without special tokens, independent of the rest of the text.
   *
   * @param text code points
   * @param from start of the part
   * @param to end of the part
   */
  abstract void addTokens(int[] text, int from, int to, TokenList tokens);

  /** Returns the end of the part between {@code from} and {@code to} if the special token follows it. */
  abstract int endBefore(String token, int[] text, int from, int to);

  @Override
  public Tokens tokenize(String text) {
    int[] codes = codePoints(text);
    TokenList tokens = new TokenList();
    int from = 0;
    for (int place = 0; specialTokensInText && place < codes.length; place++) {
      String token = SpecialTokens.at(codes, place);
      if (token != null) {
        addTokens(codes, from, endBefore(token, codes, from, place), tokens);
        from = place + token.length();
        tokens.add(specialId(token), place, from);
        place = from - 1;
      }
    }
    addTokens(codes, from, codes.length, tokens);
    return tokens.tokens();
  }

  /** Returns the code points of a text; a lone surrogate becomes U+FFFD. */
  private static int[] codePoints(String text) {
    int[] codes = new int[text.codePointCount(0, text.length())];
    int place = 0;
    for (int i = 0; i < codes.length; i++) {
      int code = text.codePointAt(place);
      place += Character.charCount(code);
      codes[i] = code >= 0xD800 && code < 0xE000 ? REPLACEMENT : code;
    }
    return codes;
  }
}
