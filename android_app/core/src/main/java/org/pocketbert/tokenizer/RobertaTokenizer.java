package org.pocketbert.tokenizer;

/** Shared code of byte-level BPE and unigram: any text is valid, and special and added tokens divide it. */
abstract class RobertaTokenizer extends Tokenizer {
  private final AddedTokens found;

  RobertaTokenizer(int vocabSize, Frame frame, AddedTokens found) {
    super(vocabSize, frame);
    this.found = found;
  }

  /**
   * Adds the tokens of a part without special tokens, independent of the rest of the text.
   *
   * @param text code points
   * @param from start of the part
   * @param to end of the part
   */
  abstract void addTokens(int[] text, int from, int to, TokenList tokens);

  /**
   * Adds the tokens of a part, in which there may be added tokens with the flag {@code normalized}.
   *
   * @param text code points
   * @param from start of the part
   * @param to end of the part
   */
  abstract void addNormalized(int[] text, int from, int to, AddedTokenFinder finder, TokenList tokens);

  @Override
  public final Tokens tokenize(String text) {
    int[] codes = AddedTokens.codePoints(text);
    TokenList tokens = new TokenList();
    int from = 0;
    for (AddedTokenFinder.Match match : found.raw.find(codes, 0, codes.length)) {
      addPart(codes, from, match.start, tokens);
      add(match.token, codes, match.start, match.end, null, tokens);
      from = match.end;
    }
    addPart(codes, from, codes.length, tokens);
    return tokens.tokens();
  }

  private void addPart(int[] codes, int from, int to, TokenList tokens) {
    if (found.normalized.isEmpty()) {
      addTokens(codes, from, to, tokens);
    } else {
      addNormalized(codes, from, to, found.normalized, tokens);
    }
  }

  /**
   * Adds an added token; its span excludes white space.
   *
   * @param origins places of the code points in the given text, or null for the given text itself
   */
  static void add(AddedToken token, int[] codes, int start, int end, int[] origins, TokenList tokens) {
    int[] span = span(codes, start, end);
    if (origins == null) {
      tokens.add(token.id, span[0], span[1]);
    } else {
      tokens.add(token.id, origins[span[0]], origins[span[1]]);
    }
  }

  /** Returns an added token's code points without white space: the first, and the end; for white space its end, twice. */
  static int[] span(int[] codes, int start, int end) {
    int first = start;
    while (first < end && AddedTokenFinder.isSpace(codes[first])) {
      first++;
    }
    int behind = end;
    while (first < behind && AddedTokenFinder.isSpace(codes[behind - 1])) {
      behind--;
    }
    return new int[] {first, behind};
  }
}
