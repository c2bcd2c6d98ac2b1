package org.pocketbert.tokenizer;

import java.util.Arrays;

/**
 * XLM-R's tokenizer, equal to {@code pocketbert.UnigramTokenizer} and so to sentencepiece, which finds the tokens with the
 * highest sum of scores.
 *
 * <p>Spans are those of the characters that a token comes from, without white space in front. Tokens that come from the
 * same character all span it; characters that normalization drops belong to the one before them. A token of white space
 * alone has an empty span. A lone surrogate is U+FFFD.
 *
 * <p>Source: XLM-R (Conneau et al. 2020), Kudo 2018 and google/sentencepiece {@code unigram_model.cc}.
 */
public final class UnigramTokenizer extends RobertaTokenizer {
  private final SentencePieceModel model;

  /**
   * A tokenizer.
   *
   * @param specialTokensInText whether a literal {@code </s>} or the like in a text is that special token, as a
   *     bundle's golden examples have it; false is right for text from people that you do not trust
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
    // Backwards from the end; unknown tokens that follow one another are one.
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
   * Fills in the token that ends at each place on the best path there.
   *
   * @param starts gets where it begins
   * @param ids gets its id
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
          // As float: rounding decides between equal sums, of which the first one found stays.
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
