package org.pocketbert.tokenizer;

/** How a WordPiece tokenizer cleans up text, as {@code tokenizer} in a bundle.json says it. */
public final class TokenizerOptions {
  final boolean lowercase;
  final boolean stripAccents;
  final boolean tokenizeChineseChars;

  /**
   * All three options.
   *
   * @param lowercase lower-case all letters
   * @param stripAccents decompose letters and drop their accents
   * @param tokenizeChineseChars make each CJK ideograph a word of its own
   */
  public TokenizerOptions(boolean lowercase, boolean stripAccents, boolean tokenizeChineseChars) {
    this.lowercase = lowercase;
    this.stripAccents = stripAccents;
    this.tokenizeChineseChars = tokenizeChineseChars;
  }

  /** BERT's defaults: accents go where letters are lower-cased, and ideographs are words. */
  public static TokenizerOptions of(boolean lowercase) {
    return new TokenizerOptions(lowercase, lowercase, true);
  }
}
