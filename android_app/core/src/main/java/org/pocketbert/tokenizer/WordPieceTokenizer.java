package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.pocketbert.UserError;

/**
 * BERT's WordPiece tokenizer. Its tokens and offsets equal those of {@code pocketbert.WordPieceTokenizer} and
 * transformers' {@code BertTokenizerFast}, for every Unicode version of Java or Android.
 *
 * <p>To use it in your app, copy this package with its tables, the package {@code json} and {@link UserError}.
 * Tokenizers are thread-safe.
 *
 * <p>Source: BERT (Devlin et al. 2019) and google-research/bert {@code tokenization.py}, as implemented in Hugging
 * Face's {@code tokenizers}.
 */
public final class WordPieceTokenizer extends Tokenizer {
  private static final int MAX_CHARACTERS_PER_WORD = 100;
  private static final String CONTINUATION = "##";

  private final Vocabulary vocabulary;
  private final TokenizerOptions options;
  private final AddedTokens found;
  private final int unkId;

  /**
   * Creates a tokenizer with BERT's default options.
   *
   * @param lowercase true for uncased vocabularies: lower-case and drop accents
   * @param specialTokensInText see the other constructor
   */
  public WordPieceTokenizer(Vocabulary vocabulary, boolean lowercase, boolean specialTokensInText) {
    this(vocabulary, TokenizerOptions.of(lowercase), specialTokensInText);
  }

  /**
   * Creates a tokenizer.
   *
   * @param options treatment of letters, accents and ideographs
   * @param specialTokensInText whether {@code [SEP]} and similar strings in a text are special tokens, as in a bundle's
   *     golden examples. Pass false for untrusted text
   */
  public WordPieceTokenizer(Vocabulary vocabulary, TokenizerOptions options, boolean specialTokensInText) {
    this(vocabulary, options, Collections.emptyList(), specialTokensInText);
  }

  /**
   * Creates a tokenizer with added tokens.
   *
   * @param options treatment of letters, accents and ideographs
   * @param added tokens to find in a text before it is split
   * @param specialTokensInText see the other constructor
   */
  public WordPieceTokenizer(
      Vocabulary vocabulary, TokenizerOptions options, List<AddedToken> added, boolean specialTokensInText) {
    super(
        AddedToken.sizeWith(vocabulary.size(), added),
        new Frame(
            vocabulary.id(Vocabulary.CLS), vocabulary.id(Vocabulary.SEP), vocabulary.id(Vocabulary.PAD), 1, 1));
    this.vocabulary = vocabulary;
    this.options = options;
    List<AddedToken> special = new ArrayList<>();
    for (String token : Vocabulary.SPECIAL_TOKENS) {
      special.add(AddedToken.special(token, vocabulary.id(token), false));
    }
    found =
        new AddedTokens(
            special,
            added,
            specialTokensInText,
            codes -> new CleanText(codes, options, Collections.emptyList()).normalized());
    unkId = vocabulary.id(Vocabulary.UNK);
  }

  @Override
  public Tokens tokenize(String text) {
    int[] given = AddedTokens.codePoints(text);
    CleanText clean = new CleanText(given, options, found.raw.find(given, 0, given.length));
    if (!found.normalized.isEmpty()) {
      clean = clean.withNormalized(found.normalized);
    }
    IntList ids = new IntList();
    IntList starts = new IntList();
    IntList ends = new IntList();
    int size = clean.codes.size();
    for (int first = 0; first < size; ) {
      int kind = clean.kinds.get(first);
      int end = first + 1;
      while (kind == BertUnicode.WORD && end < size && clean.kinds.get(end) == BertUnicode.WORD) {
        end++;
      }
      if (kind != BertUnicode.SPACE) {
        addWord(clean, first, end, ids, starts, ends);
      }
      first = end;
    }
    return new Tokens(ids.toArray(), starts.toArray(), ends.toArray());
  }

  /** Adds the tokens of the word between {@code first} and {@code end}, longest match first. */
  private void addWord(CleanText clean, int first, int end, IntList ids, IntList starts, IntList ends) {
    AddedToken token = clean.tokenAt(first);
    int before = ids.size();
    boolean known = end - first <= MAX_CHARACTERS_PER_WORD;
    if (token != null) {
      add(token.id, clean, first, end, ids, starts, ends);
      return;
    }
    for (int from = first; known && from < end; ) {
      String rest = text(clean, from, end);
      int length = Math.min(rest.length(), vocabulary.longestPiece());
      int id = -1;
      while (length > 0 && id < 0) {
        String piece = rest.substring(0, length);
        id = vocabulary.id(from == first ? piece : CONTINUATION + piece);
        length -= id < 0 ? 1 : 0;
      }
      known = id >= 0;
      if (known) {
        int to = from + rest.codePointCount(0, length);
        add(id, clean, from, to, ids, starts, ends);
        from = to;
      }
    }
    if (!known) {
      ids.truncate(before);
      starts.truncate(before);
      ends.truncate(before);
      add(unkId, clean, first, end, ids, starts, ends);
    }
  }

  private static void add(int id, CleanText clean, int from, int to, IntList ids, IntList starts, IntList ends) {
    ids.add(id);
    starts.add(clean.begins.get(from));
    ends.add(clean.ends.get(to - 1));
  }

  private static String text(CleanText clean, int from, int to) {
    StringBuilder text = new StringBuilder(to - from);
    for (int i = from; i < to; i++) {
      text.appendCodePoint(clean.codes.get(i));
    }
    return text.toString();
  }
}
