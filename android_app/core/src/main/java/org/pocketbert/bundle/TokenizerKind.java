package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.pocketbert.tokenizer.ByteBpeTokenizer;
import org.pocketbert.tokenizer.ByteBpeVocabulary;
import org.pocketbert.tokenizer.SentencePieceModel;
import org.pocketbert.tokenizer.Tokenizer;
import org.pocketbert.tokenizer.UnigramTokenizer;
import org.pocketbert.tokenizer.Vocabulary;
import org.pocketbert.tokenizer.WordPieceTokenizer;

/** The tokenizers in bundles, with their files. */
enum TokenizerKind {
  WORDPIECE("vocab.txt") {
    @Override
    Tokenizer read(Description description, List<byte[]> contents) {
      return new WordPieceTokenizer(
          Vocabulary.parse(contents.get(0)), description.tokenizer, description.addedTokens, true);
    }

    @Override
    String unit() {
      return "lines";
    }
  },
  BYTE_BPE("vocab.json", "merges.txt") {
    @Override
    Tokenizer read(Description description, List<byte[]> contents) {
      return new ByteBpeTokenizer(
          ByteBpeVocabulary.parse(contents.get(0), contents.get(1), description.byteBpeLayout),
          description.addedTokens,
          description.addPrefixSpace,
          true);
    }
  },
  UNIGRAM("sentencepiece.bpe.model") {
    @Override
    Tokenizer read(Description description, List<byte[]> contents) {
      return new UnigramTokenizer(
          SentencePieceModel.parse(contents.get(0), description.layout),
          description.addedTokens,
          description.keepsSpace,
          true);
    }

    @Override
    List<String> files(Description description) {
      return Collections.singletonList(description.layout.file);
    }
  };

  /** The kind of bundles that name none. */
  static final TokenizerKind UNNAMED = WORDPIECE;

  /** The kinds named in bundle.json. */
  static final List<TokenizerKind> NAMED = Collections.unmodifiableList(named());

  private final List<String> files;

  TokenizerKind(String... files) {
    this.files = Collections.unmodifiableList(Arrays.asList(files));
  }

  /**
   * Creates a tokenizer.
   *
   * @param contents the content of {@link #files(Description)}
   * @throws org.pocketbert.UserError if a file is invalid
   */
  abstract Tokenizer read(Description description, List<byte[]> contents);

  /** The names of the files; the first one has the tokens. */
  List<String> files(Description description) {
    return files;
  }

  /** What the file with the tokens consists of, for messages. */
  String unit() {
    return "tokens";
  }

  /** The spelling in bundle.json. */
  String word() {
    return name().toLowerCase(Locale.ROOT);
  }

  private static List<TokenizerKind> named() {
    List<TokenizerKind> kinds = new ArrayList<>(Arrays.asList(values()));
    kinds.remove(UNNAMED);
    return kinds;
  }

  /** The words of {@link #NAMED}. */
  static List<String> words() {
    List<String> words = new ArrayList<>();
    for (TokenizerKind kind : NAMED) {
      words.add(kind.word());
    }
    return words;
  }
}
