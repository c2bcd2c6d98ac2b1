package org.pocketbert.tokenizer;

/**
 * The words of a text, as in {@code pocketbert.data.tagged_texts.split_words}: separated by white space, with
 * punctuation marks and ideographs as words of their own.
 */
public final class TextWords {
  private static final TokenizerOptions OPTIONS = new TokenizerOptions(false, false, true);

  /** Start of each word in code points of the given text; a lone surrogate counts as one. */
  public final int[] starts;

  /** End of each word. */
  public final int[] ends;

  private TextWords(int[] starts, int[] ends) {
    this.starts = starts;
    this.ends = ends;
  }

  /** Splits a text. */
  public static TextWords split(String text) {
    BertUnicode tables = BertUnicode.tables();
    IntList starts = new IntList();
    IntList ends = new IntList();
    boolean inWord = false;
    int place = 0;
    for (int index = 0; index < text.length(); place++) {
      int code = text.codePointAt(index);
      index += Character.charCount(code);
      // Characters that the tokenizer drops do not end a word.
      int kind = tables.vanishes(code) ? BertUnicode.DROPPED : tables.kind(code, OPTIONS);
      boolean inside = kind == BertUnicode.WORD || kind == BertUnicode.DROPPED;
      if (inWord && !inside) {
        ends.add(place);
      }
      if (kind == BertUnicode.ISOLATED) {
        starts.add(place);
        ends.add(place + 1);
      } else if (inside && !inWord) {
        starts.add(place);
      }
      inWord = inside;
    }
    if (inWord) {
      ends.add(place);
    }
    return new TextWords(starts.toArray(), ends.toArray());
  }

  /** Number of words. */
  public int size() {
    return starts.length;
  }
}
