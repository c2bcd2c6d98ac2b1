package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * The tokenizer of XLM-R, CamemBERT, English ALBERT and DeBERTa-v3. It equals {@code pocketbert.UnigramTokenizer} and
 * sentencepiece, and finds the tokens with the highest sum of scores.
 *
 * <p>A span covers the source characters of a token, without white space before them. Tokens from the same character
 * all span it; characters dropped by normalization belong to the one before them. A token with only white space has an
 * empty span. A lone surrogate becomes U+FFFD.
 *
 * <p>Source: XLM-R (Conneau et al. 2020), Kudo 2018 and google/sentencepiece {@code unigram_model.cc}.
 */
public final class UnigramTokenizer extends RobertaTokenizer {
  private static final int SPACE_SYMBOL = 0x2581;

  private final SentencePieceModel model;
  private final boolean keepsSpace;

  /**
   * Creates a tokenizer without added tokens.
   *
   * @param specialTokensInText see the other constructor
   */
  public UnigramTokenizer(SentencePieceModel model, boolean specialTokensInText) {
    this(model, Collections.emptyList(), false, specialTokensInText);
  }

  /**
   * Creates a tokenizer.
   *
   * @param added tokens to find in a text before it is split
   * @param keepsSpace whether a space before an added token with the flag {@code normalized} is a token
   * @param specialTokensInText whether {@code </s>} and similar strings in a text are special tokens, as in a bundle's
   *     golden examples. Pass false for untrusted text
   */
  public UnigramTokenizer(
      SentencePieceModel model, List<AddedToken> added, boolean keepsSpace, boolean specialTokensInText) {
    super(
        AddedToken.sizeWith(model.size(), added),
        model.layout.frame(),
        new AddedTokens(
            model.special(),
            added,
            specialTokensInText,
            codes -> MappedText.of(codes, 0, codes.length, model.characters, model.layout.cleansText()).codes));
    this.model = model;
    this.keepsSpace = keepsSpace;
  }

  /** Added tokens divide the normalized text; without one, the part is tokenized as it is. */
  @Override
  void addNormalized(int[] text, int from, int to, AddedTokenFinder finder, TokenList tokens) {
    MappedText mapped = MappedText.of(text, from, to, model.characters, model.layout.cleansText());
    List<AddedTokenFinder.Match> matches = finder.find(mapped.codes, 0, mapped.codes.length);
    if (matches.isEmpty()) {
      addTokens(text, from, to, tokens);
      return;
    }
    int start = 0;
    for (AddedTokenFinder.Match match : matches) {
      addMapped(mapped, start, match.start, tokens);
      if (keepsSpace && match.start > start && mapped.codes[match.start - 1] == ' ') {
        int place = mapped.origins[match.start];
        tokens.add(spaceId(), place, place);
      }
      add(match.token, mapped.codes, match.start, match.end, mapped.origins, tokens);
      start = match.end;
    }
    addMapped(mapped, start, mapped.codes.length, tokens);
  }

  private int spaceId() {
    return model.id(new int[] {SPACE_SYMBOL}, 0, 1);
  }

  private void addMapped(MappedText mapped, int from, int to, TokenList tokens) {
    TokenList part = new TokenList();
    addTokens(mapped.codes, from, to, part);
    Tokens found = part.tokens();
    for (int i = 0; i < found.ids.length; i++) {
      tokens.add(found.ids[i], mapped.origins[found.starts[i]], mapped.origins[found.ends[i]]);
    }
  }

  @Override
  void addTokens(int[] text, int from, int to, TokenList tokens) {
    if (!model.layout.cleansText()) {
      NormalizedText normalized = new NormalizedText(text, from, to, model.characters);
      int[] ids = new int[normalized.codes.length + 1];
      int begin = 0;
      for (int end : bestPath(normalized.codes, ids)) {
        normalized.addToken(ids[end], begin, end, tokens);
        begin = end;
      }
      return;
    }
    AlbertText cleaned = new AlbertText(text, from, to, true);
    TokenList part = new TokenList();
    addCleaned(cleaned.codes, part);
    Tokens found = part.tokens();
    for (int i = 0; i < found.ids.length; i++) {
      int start = cleaned.start(found.starts[i]);
      tokens.add(found.ids[i], start, found.starts[i] < found.ends[i] ? cleaned.end(found.ends[i]) : start);
    }
  }

  /** Adds the tokens of a cleaned text; those with a digit and a comma at their end are split again. */
  private void addCleaned(int[] text, TokenList tokens) {
    NormalizedText normalized = new NormalizedText(text, 0, text.length, model.characters);
    int[] codes = normalized.codes;
    int[] ids = new int[codes.length + 1];
    int begin = 0;
    for (int end : bestPath(codes, ids)) {
      if (end - begin > 1 && codes[end - 1] == ',' && AlbertText.isDigit(codes[end - 2])) {
        addNumber(normalized, begin, end, tokens);
      } else {
        normalized.addToken(ids[end], begin, end, tokens);
      }
      begin = end;
    }
  }

  /** Splits a number without its comma, and without the space that the normalization puts before it. */
  private void addNumber(NormalizedText normalized, int begin, int end, TokenList tokens) {
    int[] codes = normalized.codes;
    int[] number = Arrays.stream(codes, begin, end - 1).filter(code -> code != SPACE_SYMBOL).toArray();
    int[] again = new NormalizedText(number, 0, number.length, model.characters).codes;
    List<int[]> parts = new ArrayList<>();
    int start = 0;
    for (int behind : bestPath(again, new int[again.length + 1])) {
      boolean dropsSpace = start == 0 && codes[begin] != SPACE_SYMBOL && again[0] == SPACE_SYMBOL;
      if (!dropsSpace || behind > 1) {
        parts.add(Arrays.copyOfRange(again, dropsSpace ? 1 : start, behind));
      }
      start = behind;
    }
    parts.add(new int[] {','});
    int[] joined = parts.stream().flatMapToInt(Arrays::stream).toArray();
    // If the normalization has changed the number, all of it belongs to the first token.
    boolean isSame = Arrays.equals(joined, Arrays.copyOfRange(codes, begin, end));
    int place = begin;
    for (int[] part : parts) {
      int behind = isSame ? place + part.length : end;
      normalized.addToken(model.id(part, 0, part.length), place, behind, tokens);
      place = behind;
    }
  }

  /**
   * Returns the ends of the best tokens. Successive unknown characters are one token.
   *
   * @param ids receives the id of the token that ends at each place
   */
  private int[] bestPath(int[] codes, int[] ids) {
    int[] starts = new int[codes.length + 1];
    findBestPath(codes, starts, ids);
    // Walks backwards from the end.
    int[] ends = new int[codes.length];
    int count = 0;
    for (int end = codes.length; end > 0; end = starts[end]) {
      boolean joined = ids[end] == model.unknownId && count > 0 && ids[ends[count - 1]] == ids[end];
      if (!joined) {
        ends[count++] = end;
      }
    }
    int[] ordered = new int[count];
    for (int i = 0; i < count; i++) {
      ordered[i] = ends[count - 1 - i];
    }
    return ordered;
  }

  /**
   * Stores the last token of the best path to each position.
   *
   * @param starts receives its start
   * @param ids receives its id
   */
  private void findBestPath(int[] codes, int[] starts, int[] ids) {
    TokenTrie trie = model.trie;
    float[] best = new float[codes.length + 1];
    Arrays.fill(starts, -1);
    for (int start = 0; start < codes.length; start++) {
      float before = best[start];
      int node = TokenTrie.ROOT;
      boolean known = false;
      for (int end = start + 1; end <= codes.length; end++) {
        node = trie.next(node, codes[end - 1]);
        if (node == TokenTrie.NONE) {
          break;
        }
        int id = trie.id(node);
        if (id != TokenTrie.NONE) {
          known |= end == start + 1;
          // In float: rounding decides between nearly equal sums; the first of equal sums wins.
          float score = model.score(id) + before;
          if (starts[end] < 0 || score > best[end]) {
            best[end] = score;
            starts[end] = start;
            ids[end] = id;
          }
        }
      }
      if (!known) {
        float score = model.unknownScore + before;
        if (starts[start + 1] < 0 || score > best[start + 1]) {
          best[start + 1] = score;
          starts[start + 1] = start;
          ids[start + 1] = model.unknownId;
        }
      }
    }
  }
}
