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

  /** Returns the special token at a position of a text, or null. No special token starts with another. */
  static String at(int[] text, int place) {
    if (text[place] == '<') {
      for (String token : ALL) {
        if (isAt(text, place, token)) {
          return token;
        }
      }
    }
    return null;
  }

  private static boolean isAt(int[] text, int place, String token) {
    if (token.length() > text.length - place) {
      return false;
    }
    for (int i = 1; i < token.length(); i++) {
      if (text[place + i] != token.charAt(i)) {
        return false;
      }
    }
    return true;
  }
}
