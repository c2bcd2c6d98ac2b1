package org.pocketbert.tokenizer;

/** The tokens of a text and where they come from. */
public final class Tokens {
  /** Ids of the tokens. */
  public final int[] ids;

  /** Offset of each token's first code point in the given text; a lone surrogate counts as one. */
  public final int[] starts;

  /** Offset behind each token's last code point. */
  public final int[] ends;

  Tokens(int[] ids, int[] starts, int[] ends) {
    this.ids = ids;
    this.starts = starts;
    this.ends = ends;
  }
}
