package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.Tokenizer;

/** Creates a bundle's tokenizer from verified files. */
final class BundleTokenizer {
  private BundleTokenizer() {}

  /**
   * Reads the tokenizer's files.
   *
   * @param contents all files of the tokenizer's kind by name
   * @param problems receives problems of the files, and a different size in bundle.json
   * @return null if they cannot be read
   */
  static Tokenizer open(Description description, Map<String, ByteBuffer> contents, List<String> problems) {
    TokenizerKind kind = description.tokenizerKind;
    List<String> names = kind.files(description);
    String first = names.get(0);
    List<byte[]> files = new ArrayList<>();
    for (String name : names) {
      files.add(CheckedFile.bytes(contents.get(name)));
    }
    Tokenizer tokenizer;
    try {
      tokenizer = kind.read(description, files);
    } catch (UserError error) {
      // Messages about two files already name them.
      problems.add((files.size() == 1 ? first + ": " : "") + error.getMessage());
      return null;
    }
    if (tokenizer.vocabSize() != description.vocabSize) {
      problems.add(
          first + " must have " + description.vocabSize + " " + kind.unit() + ", the vocab_size of " + Bundle.DESCRIPTION
              + "; it has " + tokenizer.vocabSize());
    }
    return tokenizer.cutting(description.truncation);
  }
}
