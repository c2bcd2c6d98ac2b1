package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;

/** Special tokens and the form of texts in byte-level BPE; as in Python. */
public enum ByteBpeLayout {
  /** RoBERTa. It has the name of unigram's default. */
  XLM_R(SpecialTokens.ALL, SpecialTokens.BOS, SpecialTokens.EOS, SpecialTokens.PAD, SpecialTokens.MASK, 2),
  /** ModernBERT: texts are brought into Unicode's form C, and special tokens may be behind the vocabulary. */
  MODERNBERT(Arrays.asList("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"), "[CLS]", "[SEP]", "[PAD]", "[MASK]", 1);

  /** All special tokens. */
  final List<String> special;

  private final String first;
  private final String last;
  private final String pad;
  private final String mask;
  private final int separators;

  ByteBpeLayout(List<String> special, String first, String last, String pad, String mask, int separators) {
    this.special = special;
    this.first = first;
    this.last = last;
    this.pad = pad;
    this.mask = mask;
    this.separators = separators;
  }

  /** Whether texts are brought into form C. */
  boolean composes() {
    return this == MODERNBERT;
  }

  /** The special tokens that the vocabulary must have. */
  List<String> required() {
    return this == MODERNBERT ? Collections.emptyList() : special;
  }

  /** The special tokens in a vocabulary, with their usual flags. */
  List<AddedToken> specialIn(Map<String, Integer> ids) {
    List<AddedToken> tokens = new ArrayList<>();
    for (String token : special) {
      if (ids.containsKey(token)) {
        tokens.add(AddedToken.special(token, ids.get(token), token.equals(mask)));
      }
    }
    return tokens;
  }

  /**
   * The special tokens around texts.
   *
   * @param tokens the special tokens in the vocabulary
   * @param added the added tokens
   * @throws UserError if a special token is in neither
   */
  Frame frame(List<AddedToken> tokens, List<AddedToken> added) {
    List<AddedToken> all = new ArrayList<>(tokens);
    all.addAll(added);
    List<String> missing = new ArrayList<>(special);
    int[] ids = new int[3];
    for (AddedToken token : all) {
      missing.remove(token.content);
      int place = Arrays.asList(first, last, pad).indexOf(token.content);
      if (place >= 0) {
        ids[place] = token.id;
      }
    }
    if (!missing.isEmpty()) {
      throw new UserError(
          "a tokenizer must have " + String.join(" ", special) + "; received one without "
              + String.join(" ", missing) + "; take all tokenizer files from one model");
    }
    return new Frame(ids[0], ids[1], ids[2], separators, 0);
  }
}
