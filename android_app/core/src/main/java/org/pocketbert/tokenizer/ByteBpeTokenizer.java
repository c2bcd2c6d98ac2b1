package org.pocketbert.tokenizer;

import java.util.Collections;
import java.util.List;

/**
 * RoBERTa's tokenizer. It equals {@code pocketbert.ByteBPETokenizer} and Hugging Face's tokenizers with {@code
 * trim_offsets=True}, for every Unicode version of Java or Android.
 *
 * <p>Spans exclude the white space before a token. A token for part of a character spans the character; a token with
 * only spaces has an empty span. A lone surrogate becomes U+FFFD.
 *
 * <p>Source: RoBERTa (Liu et al. 2019) and GPT-2 (Radford et al. 2019).
 */
public final class ByteBpeTokenizer extends RobertaTokenizer {
  private final ByteBpeVocabulary vocabulary;
  private final boolean addPrefixSpace;

  /**
   * Creates a tokenizer without added tokens.
   *
   * @param specialTokensInText see the other constructor
   */
  public ByteBpeTokenizer(ByteBpeVocabulary vocabulary, boolean specialTokensInText) {
    this(vocabulary, Collections.emptyList(), false, specialTokensInText);
  }

  /**
   * Creates a tokenizer.
   *
   * @param added tokens to find in a text before it is split
   * @param addPrefixSpace whether a text that begins without a space gets one, and each part after a token that is found
   *     before the split
   * @param specialTokensInText whether {@code </s>} and similar strings in a text are special tokens, as in a bundle's
   *     golden examples ({@code <mask>} includes the white space before it). Pass false for untrusted text
   */
  public ByteBpeTokenizer(
      ByteBpeVocabulary vocabulary, List<AddedToken> added, boolean addPrefixSpace, boolean specialTokensInText) {
    super(
        AddedToken.sizeWith(vocabulary.size(), added),
        Frame.roberta(
            vocabulary.specialId(SpecialTokens.BOS),
            vocabulary.specialId(SpecialTokens.EOS),
            vocabulary.specialId(SpecialTokens.PAD)),
        new AddedTokens(
            special(
                vocabulary.specialId(SpecialTokens.BOS),
                vocabulary.specialId(SpecialTokens.PAD),
                vocabulary.specialId(SpecialTokens.EOS),
                vocabulary.specialId(SpecialTokens.UNK),
                vocabulary.specialId(SpecialTokens.MASK)),
            added,
            specialTokensInText,
            codes -> codes));
    this.vocabulary = vocabulary;
    this.addPrefixSpace = addPrefixSpace;
  }

  /** There is no normalization. */
  @Override
  void addNormalized(int[] text, int from, int to, AddedTokenFinder finder, TokenList tokens) {
    int start = from;
    for (AddedTokenFinder.Match match : finder.find(text, from, to)) {
      addTokens(text, start, match.start, tokens);
      add(match.token, text, match.start, match.end, null, tokens);
      start = match.end;
    }
    addTokens(text, start, to, tokens);
  }

  @Override
  void addTokens(int[] text, int from, int to, TokenList tokens) {
    if (!addPrefixSpace || from == to) {
      addWords(text, from, to, tokens);
      return;
    }
    boolean hasSpace = text[from] == ' ';
    int shift = hasSpace ? from : from - 1;
    int[] prefixed = new int[to - shift];
    prefixed[0] = ' ';
    System.arraycopy(text, shift + 1, prefixed, 1, to - shift - 1);
    TokenList list = new TokenList();
    addWords(prefixed, 0, prefixed.length, list);
    Tokens part = list.tokens();
    boolean isFirst = tokens.isEmpty();
    for (int i = 0; i < part.ids.length; i++) {
      int start = part.starts[i] + shift;
      int end = part.ends[i] + shift;
      // Spans of the library: the added space counts as the part's first character, and a single space at the start
      // of the text belongs to its first token.
      if (i == 0 && isFirst && hasSpace && part.starts[0] == 1) {
        start = shift;
        end = part.ends[0] == 1 ? shift : end;
      } else if (i == 0 && !isFirst && !hasSpace) {
        start = from + 1;
        end = Math.max(end, start);
      }
      tokens.add(part.ids[i], start, end);
    }
  }

  private void addWords(int[] text, int from, int to, TokenList tokens) {
    for (int start = from; start < to; ) {
      int end = wordEnd(text, start, to);
      new ByteBpeWord(text, start, end, vocabulary).addTokens(tokens);
      start = end;
    }
  }

  private static boolean isSpace(int code) {
    return ByteLevelUnicode.kind(code) == ByteLevelUnicode.SPACE;
  }

  /**
   * Returns the end of the word that starts at a position, by GPT-2's pattern: {@code 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|
   * ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+}.
   */
  private static int wordEnd(int[] text, int start, int to) {
    int contraction = text[start] == '\'' ? contraction(text, start + 1, to) : 0;
    if (contraction > 0) {
      return start + 1 + contraction;
    }
    // A single space belongs to the next word.
    int first = text[start] == ' ' && start + 1 < to && !isSpace(text[start + 1]) ? start + 1 : start;
    int kind = ByteLevelUnicode.kind(text[first]);
    int end = first + 1;
    while (end < to && ByteLevelUnicode.kind(text[end]) == kind) {
      end++;
    }
    // The last of several spaces belongs to the next word.
    return kind == ByteLevelUnicode.SPACE && end < to && end - start > 1 ? end - 1 : end;
  }

  /** Returns the number of letters in an English contraction's ending, or 0. */
  private static int contraction(int[] text, int place, int to) {
    int first = place < to ? text[place] : 0;
    int second = place + 1 < to ? text[place + 1] : 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
      return 1;
    }
    boolean two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? 2 : 0;
  }
}
