package org.pocketbert.tokenizer;

import org.pocketbert.ResourceTable;

/**
 * Letters, numbers and white space as in Hugging Face's tokenizers, from the table in this class's resources.
 *
 * <p>This class avoids {@link Character}, because its Unicode version depends on the Java or Android version.
 */
final class ByteLevelUnicode {
  static final int OTHER = 0;
  static final int LETTER = 1;
  static final int NUMBER = 2;
  static final int SPACE = 3;

  private static final String TABLE = "byte_level_unicode.txt";
  private static final CodePointTable KINDS = read();

  private ByteLevelUnicode() {}

  /** Returns a code point's kind, one of the constants. */
  static int kind(int code) {
    return KINDS.get(code);
  }

  private static CodePointTable read() {
    CodePointTable kinds = new CodePointTable();
    for (String[] words : ResourceTable.lines(ByteLevelUnicode.class, TABLE)) {
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
