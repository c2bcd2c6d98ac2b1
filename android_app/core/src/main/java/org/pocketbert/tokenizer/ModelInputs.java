package org.pocketbert.tokenizer;

import java.util.LinkedHashMap;
import java.util.Map;

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

  /** The arrays under the names that PocketBERT's networks give their inputs. */
  public Map<String, int[]> byName() {
    Map<String, int[]> inputs = new LinkedHashMap<>();
    inputs.put("input_word_ids", wordIds);
    inputs.put("input_mask", mask);
    inputs.put("input_type_ids", typeIds);
    return inputs;
  }

  /** Places, padding included. */
  public int length() {
    return wordIds.length;
  }
}
