package org.pocketbert.tokenizer;

/**
 * Letters, numbers and white space as Hugging Face's tokenizers see them, from the table beside this class.
 *
 * <p>{@link Character} is of no use here: its Unicode version is that of the Java or Android that runs.
 */
final class ByteLevelUnicode {
  static final int OTHER = 0;
  static final int LETTER = 1;
  static final int NUMBER = 2;
  static final int SPACE = 3;

  private static final String TABLE = "byte_level_unicode.txt";
  private static final CodePointTable KINDS = read();

  private ByteLevelUnicode() {}

  /** What a code point is: one of the constants. */
  static int kind(int code) {
    return KINDS.get(code);
  }

  private static CodePointTable read() {
    CodePointTable kinds = new CodePointTable();
    for (String[] words : CodePointTable.lines(TABLE)) {
      kinds.fill(words, 1, kind(words[0]));
    }
    return kinds;
  }

  private static int kind(String name) {
    switch (name) {
      case "letter":
        return LETTER;
      case "number":
        return NUMBER;
      case "space":
        return SPACE;
      default:
        throw new IllegalStateException(TABLE + " has an unknown line: " + name);
    }
  }
}
