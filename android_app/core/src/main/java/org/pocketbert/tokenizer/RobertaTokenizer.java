package org.pocketbert.tokenizer;

/** What byte-level BPE and unigram have in common: any text is valid, and special tokens in it divide it. */
abstract class RobertaTokenizer extends Tokenizer {
  private static final int REPLACEMENT = 0xFFFD;
  private final boolean specialTokensInText;

  RobertaTokenizer(int vocabSize, Frame frame, boolean specialTokensInText) {
    super(vocabSize, frame);
    this.specialTokensInText = specialTokensInText;
  }

  /** The id of one of {@link SpecialTokens#ALL}. */
  abstract int specialId(String token);

  /**
   * Adds the tokens of a part of a text that holds no special tokens; its neighbours have no influence.
   *
   * @param text code points
   * @param from the part's first place
   * @param to the place behind it
   */
  abstract void addTokens(int[] text, int from, int to, TokenList tokens);

  /** Where the part from {@code from} to {@code to} ends if the special token follows it. */
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

  /** The code points of a text; a lone surrogate is U+FFFD. */
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
