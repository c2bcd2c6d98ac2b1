package org.pocketbert.tokenizer;

/** How a WordPiece tokenizer normalizes text: {@code tokenizer} in bundle.json. */
public final class TokenizerOptions {
  final boolean lowercase;
  final boolean stripAccents;
  final boolean tokenizeChineseChars;

  /**
   * Creates options.
   *
   * @param lowercase lower-case all letters
   * @param stripAccents decompose letters and drop their accents
   * @param tokenizeChineseChars make each CJK ideograph a word
   */
  public TokenizerOptions(boolean lowercase, boolean stripAccents, boolean tokenizeChineseChars) {
    this.lowercase = lowercase;
    this.stripAccents = stripAccents;
    this.tokenizeChineseChars = tokenizeChineseChars;
  }

  /** Returns BERT's defaults: drop accents if letters are lower-cased, and make ideographs words. */
  public static TokenizerOptions of(boolean lowercase) {
    return new TokenizerOptions(lowercase, lowercase, true);
  }
}
