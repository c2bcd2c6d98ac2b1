package org.pocketbert.tokenizer;

/**
 * The words of a text, as in {@code pocketbert.data.readers.tagged_texts.split_words}: separated by white space, with
 * punctuation marks, ideographs and other characters of scripts without spaces as words of their own.
 */
public final class TextWords {
  private static final TokenizerOptions OPTIONS = new TokenizerOptions(false, false, true);

  // As UNSPACED in Python: Thai, Lao, Myanmar, Khmer, Tai, kana. Pairs of the first and last code point.
  private static final int[] UNSPACED = {
    0xE00, 0xEFF, 0x1000, 0x109F, 0x1780, 0x17FF, 0x1950, 0x19FF, 0x1A20, 0x1AAF, 0x3005, 0x3007, 0x3041, 0x30FF,
    0x31F0, 0x31FF, 0xA9E0, 0xA9FF, 0xAA60, 0xAA7F, 0xFF66, 0xFF9F, 0x1AFF0, 0x1B16F,
  };

  /** Start of each word in code points of the given text; a lone surrogate counts as one. */
  public final int[] starts;

  /** End of each word. */
  public final int[] ends;

  private final boolean[] unspaced;

  private TextWords(int[] starts, int[] ends, boolean[] unspaced) {
    this.starts = starts;
    this.ends = ends;
    this.unspaced = unspaced;
  }

  /**
   * Whether a word follows another one without space and is a character of a script without spaces. Without a token of
   * its own, it belongs to the word before.
   */
  public boolean continues(int word) {
    return word > 0 && ends[word - 1] == starts[word] && unspaced[word];
  }

  private static boolean isUnspaced(int code) {
    for (int i = 0; i < UNSPACED.length; i += 2) {
      if (code >= UNSPACED[i] && code <= UNSPACED[i + 1]) {
        return true;
      }
    }
    return false;
  }

  /** Whether a code point is an accent or another mark on the letter before it. */
  public static boolean isMark(int code) {
    return BertUnicode.tables().isMark(code);
  }

  /** Splits a text. */
  public static TextWords split(String text) {
    BertUnicode tables = BertUnicode.tables();
    IntList starts = new IntList();
    IntList ends = new IntList();
    IntList firsts = new IntList();
    boolean inWord = false;
    int place = 0;
    for (int index = 0; index < text.length(); place++) {
      int code = text.codePointAt(index);
      index += Character.charCount(code);
      // Characters that the tokenizer drops do not end a word.
      int kind = tables.vanishes(code) ? BertUnicode.DROPPED : tables.kind(code, OPTIONS);
      if (kind == BertUnicode.WORD && isUnspaced(code)) {
        kind = BertUnicode.ISOLATED;
      }
      boolean inside = kind == BertUnicode.WORD || kind == BertUnicode.DROPPED;
      if (inWord && !inside) {
        ends.add(place);
      }
      if (kind == BertUnicode.ISOLATED) {
        starts.add(place);
        firsts.add(code);
        ends.add(place + 1);
      } else if (inside && !inWord) {
        starts.add(place);
        firsts.add(code);
      }
      inWord = inside;
    }
    if (inWord) {
      ends.add(place);
    }
    boolean[] unspaced = new boolean[firsts.size()];
    for (int word = 0; word < unspaced.length; word++) {
      unspaced[word] = isUnspaced(firsts.get(word)) || tables.isIdeograph(firsts.get(word), OPTIONS);
    }
    return new TextWords(starts.toArray(), ends.toArray(), unspaced);
  }

  /** Number of words. */
  public int size() {
    return starts.length;
  }
}
