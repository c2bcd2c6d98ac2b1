package org.pocketbert.tokenizer;

/** What a network is fed with for one text or pair; all arrays have the same length. */
public final class ModelInputs {
  /** Ids, special tokens included, then padding. */
  public final int[] wordIds;

  /** 1 for a token, 0 for padding. */
  public final int[] mask;

  /** 1 for the second text and the separator behind it. */
  public final int[] typeIds;

  ModelInputs(int length) {
    wordIds = new int[length];
    mask = new int[length];
    typeIds = new int[length];
  }

  /** Places, padding included. */
  public int length() {
    return wordIds.length;
  }
}
