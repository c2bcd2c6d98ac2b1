package org.pocketbert.tokenizer;

import java.util.LinkedHashMap;
import java.util.Map;

/** A network's inputs for one text or pair. All arrays have the same length. */
public final class ModelInputs {
  /** Ids, including special tokens, then padding. */
  public final int[] wordIds;

  /** 1 for a token, 0 for padding. */
  public final int[] mask;

  /** 1 for the second text and its separator. */
  public final int[] typeIds;

  ModelInputs(int length) {
    wordIds = new int[length];
    mask = new int[length];
    typeIds = new int[length];
  }

  /** Returns the arrays by the input names of PocketBERT's networks. */
  public Map<String, int[]> byName() {
    Map<String, int[]> inputs = new LinkedHashMap<>();
    inputs.put("input_word_ids", wordIds);
    inputs.put("input_mask", mask);
    inputs.put("input_type_ids", typeIds);
    return inputs;
  }

  /** Returns the number of ids, including padding. */
  public int length() {
    return wordIds.length;
  }
}
