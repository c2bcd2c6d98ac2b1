package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** The tokenizers in bundles, with their files. */
enum TokenizerKind {
  WORDPIECE("vocab.txt"),
  BYTE_BPE("vocab.json", "merges.txt"),
  UNIGRAM("sentencepiece.bpe.model");

  /** The kinds named in bundle.json: all but {@link #WORDPIECE}, whose bundles have schema version 2. */
  static final List<TokenizerKind> NAMED = Arrays.asList(BYTE_BPE, UNIGRAM);

  /** The first file has the tokens. */
  final List<String> files;

  TokenizerKind(String... files) {
    this.files = Collections.unmodifiableList(Arrays.asList(files));
  }

  /** The spelling in bundle.json. */
  String word() {
    return name().toLowerCase(Locale.ROOT);
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
