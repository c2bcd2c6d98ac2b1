package org.pocketbert.tokenizer;

import java.util.Arrays;
import java.util.List;

/** The special tokens of RoBERTa and XLM-R. */
final class SpecialTokens {
  static final String BOS = "<s>";
  static final String PAD = "<pad>";
  static final String EOS = "</s>";
  static final String UNK = "<unk>";
  static final String MASK = "<mask>";

  /** All special tokens in the order of XLM-R's ids; MASK is last. */
  static final List<String> ALL = Arrays.asList(BOS, PAD, EOS, UNK, MASK);

  private SpecialTokens() {}
}
