package org.pocketbert.tokenizer;

import java.util.List;

/** A token that a text contains as a whole, in transformers' terms. */
public final class AddedToken {
  final String content;
  final int id;
  final boolean leftStrip;
  final boolean rightStrip;
  final boolean singleWord;
  final boolean normalized;
  final boolean special;

  /**
   * Creates a token.
   *
   * @param content the text that becomes the token
   * @param id its id: that in the vocabulary, or one after the last
   * @param leftStrip whether it includes the white space before it
   * @param rightStrip whether it includes the white space after it
   * @param singleWord whether it must not touch other letters and digits
   * @param normalized whether it is found in the normalized text
   * @param special whether it is ordinary text if special tokens are
   */
  public AddedToken(
      String content,
      int id,
      boolean leftStrip,
      boolean rightStrip,
      boolean singleWord,
      boolean normalized,
      boolean special) {
    this.content = content;
    this.id = id;
    this.leftStrip = leftStrip;
    this.rightStrip = rightStrip;
    this.singleWord = singleWord;
    this.normalized = normalized;
    this.special = special;
  }

  /** A special token; only the white space before it can belong to it. */
  static AddedToken special(String content, int id, boolean leftStrip) {
    return new AddedToken(content, id, leftStrip, false, false, false, true);
  }

  /** The content's code points. */
  int[] codes() {
    return content.codePoints().toArray();
  }

  /** Returns the size of a vocabulary of {@code size} tokens with the added ones behind it. */
  static int sizeWith(int size, List<AddedToken> added) {
    int largest = size - 1;
    for (AddedToken token : added) {
      largest = Math.max(largest, token.id);
    }
    return largest + 1;
  }
}
