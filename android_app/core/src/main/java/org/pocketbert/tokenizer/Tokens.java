package org.pocketbert.tokenizer;

/** The tokens of a text and their positions in it. */
public final class Tokens {
  /** Ids of the tokens. */
  public final int[] ids;

  /** Start of each token in code points of the given text; a lone surrogate counts as one. */
  public final int[] starts;

  /** End of each token. */
  public final int[] ends;

  Tokens(int[] ids, int[] starts, int[] ends) {
    this.ids = ids;
    this.starts = starts;
    this.ends = ends;
  }
}
