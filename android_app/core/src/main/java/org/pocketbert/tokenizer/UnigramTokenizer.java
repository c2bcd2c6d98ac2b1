package org.pocketbert.tokenizer;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * XLM-R's tokenizer. It equals {@code pocketbert.UnigramTokenizer} and sentencepiece, and finds the tokens with the
 * highest sum of scores.
 *
 * <p>A span covers the source characters of a token, without white space before them. Tokens from the same character
 * all span it; characters dropped by normalization belong to the one before them. A token with only white space has an
 * empty span. A lone surrogate becomes U+FFFD.
 *
 * <p>Source: XLM-R (Conneau et al. 2020), Kudo 2018 and google/sentencepiece {@code unigram_model.cc}.
 */
public final class UnigramTokenizer extends RobertaTokenizer {
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
        Frame.roberta(SentencePieceModel.BOS_ID, SentencePieceModel.EOS_ID, SentencePieceModel.PAD_ID),
        new AddedTokens(
            special(
                SentencePieceModel.BOS_ID,
                SentencePieceModel.PAD_ID,
                SentencePieceModel.EOS_ID,
                SentencePieceModel.UNK_ID,
                model.specialId(SpecialTokens.MASK)),
            added,
            specialTokensInText,
            codes -> MappedText.of(codes, 0, codes.length, model.characters).codes));
    this.model = model;
    this.keepsSpace = keepsSpace;
  }

  /** Added tokens divide the normalized text; without one, the part is tokenized as it is. */
  @Override
  void addNormalized(int[] text, int from, int to, AddedTokenFinder finder, TokenList tokens) {
    MappedText mapped = MappedText.of(text, from, to, model.characters);
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
    int node = model.trie.next(TokenTrie.ROOT, '\u2581');
    int id = node == TokenTrie.NONE ? TokenTrie.NONE : model.trie.id(node);
    return id == TokenTrie.NONE ? SentencePieceModel.UNK_ID : id;
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
    NormalizedText normalized = new NormalizedText(text, from, to, model.characters);
    int[] codes = normalized.codes;
    int[] starts = new int[codes.length + 1];
    int[] ids = new int[codes.length + 1];
    findBestPath(codes, starts, ids);
    // Walks backwards from the end and merges successive unknown tokens.
    int[] ends = new int[codes.length];
    int count = 0;
    for (int end = codes.length; end > 0; end = starts[end]) {
      boolean joined = ids[end] == SentencePieceModel.UNK_ID && count > 0 && ids[ends[count - 1]] == ids[end];
      if (!joined) {
        ends[count++] = end;
      }
    }
    int begin = 0;
    for (int i = count - 1; i >= 0; i--) {
      normalized.addToken(ids[ends[i]], begin, ends[i], tokens);
      begin = ends[i];
    }
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
          ids[start + 1] = SentencePieceModel.UNK_ID;
        }
      }
    }
  }
}
