package org.pocketbert.tokenizer;

/** The special tokens around one or two texts. */
final class Frame {
  /** Id of the first token. */
  final int first;

  /** Id of the last token and of the separators. */
  final int last;

  /** Id of padding. */
  final int pad;

  /** Tokens between two texts. */
  final int separators;

  /** Type id of the second text and of its last token. */
  final int secondType;

  Frame(int first, int last, int pad, int separators, int secondType) {
    this.first = first;
    this.last = last;
    this.pad = pad;
    this.separators = separators;
    this.secondType = secondType;
  }

  /** The frame of RoBERTa and XLM-R: {@code <s> A </s></s> B </s>}, with type 0 everywhere. */
  static Frame roberta(int first, int last, int pad) {
    return new Frame(first, last, pad, 2, 0);
  }

  int specialTokens(boolean pairs) {
    return pairs ? 2 + separators : 2;
  }
}
