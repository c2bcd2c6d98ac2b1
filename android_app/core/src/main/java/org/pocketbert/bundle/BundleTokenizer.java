package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ByteBpeTokenizer;
import org.pocketbert.tokenizer.ByteBpeVocabulary;
import org.pocketbert.tokenizer.SentencePieceModel;
import org.pocketbert.tokenizer.Tokenizer;
import org.pocketbert.tokenizer.UnigramTokenizer;
import org.pocketbert.tokenizer.Vocabulary;
import org.pocketbert.tokenizer.WordPieceTokenizer;

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
    String first = kind.files.get(0);
    List<byte[]> files = new ArrayList<>();
    for (String name : kind.files) {
      files.add(CheckedFile.bytes(contents.get(name)));
    }
    Tokenizer tokenizer;
    try {
      tokenizer = read(description, files);
    } catch (UserError error) {
      // Messages about two files already name them.
      problems.add((files.size() == 1 ? first + ": " : "") + error.getMessage());
      return null;
    }
    if (tokenizer.vocabSize() != description.vocabSize) {
      String unit = kind == TokenizerKind.WORDPIECE ? " lines" : " tokens";
      problems.add(
          first + " must have " + description.vocabSize + unit + ", the vocab_size of " + Bundle.DESCRIPTION
              + "; it has " + tokenizer.vocabSize());
    }
    return tokenizer.cutting(description.truncation);
  }

  private static Tokenizer read(Description description, List<byte[]> files) {
    switch (description.tokenizerKind) {
      case BYTE_BPE:
        return new ByteBpeTokenizer(
            ByteBpeVocabulary.parse(files.get(0), files.get(1)),
            description.addedTokens,
            description.addPrefixSpace,
            true);
      case UNIGRAM:
        return new UnigramTokenizer(
            SentencePieceModel.parse(files.get(0)), description.addedTokens, description.keepsSpace, true);
      default:
        return new WordPieceTokenizer(
            Vocabulary.parse(files.get(0)), description.tokenizer, description.addedTokens, true);
    }
  }
}
