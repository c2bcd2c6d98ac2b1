package org.pocketbert.tokenizer;

import java.util.Arrays;

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

  /**
   * Creates a tokenizer.
   *
   * @param specialTokensInText whether {@code </s>} and similar strings in a text are special tokens, as in a bundle's
   *     golden examples. Pass false for untrusted text
   */
  public UnigramTokenizer(SentencePieceModel model, boolean specialTokensInText) {
    super(
        model.size(),
        Frame.roberta(SentencePieceModel.BOS_ID, SentencePieceModel.EOS_ID, SentencePieceModel.PAD_ID),
        specialTokensInText);
    this.model = model;
  }

  @Override
  int specialId(String token) {
    return model.specialId(token);
  }

  @Override
  int endBefore(String token, int[] text, int from, int to) {
    return to;
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
