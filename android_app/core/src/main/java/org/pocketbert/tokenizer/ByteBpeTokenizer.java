package org.pocketbert.tokenizer;

import java.util.Collections;
import java.util.List;

/**
 * The tokenizer of RoBERTa and ModernBERT. It equals {@code pocketbert.ByteBPETokenizer} and Hugging Face's tokenizers with {@code
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
        vocabulary.layout.frame(vocabulary.special(), added),
        new AddedTokens(
            vocabulary.special(),
            added,
            specialTokensInText,
            codes -> ComposedText.of(codes, 0, codes.length, vocabulary.layout.composes()).codes));
    this.vocabulary = vocabulary;
    this.addPrefixSpace = addPrefixSpace;
  }

  @Override
  void addNormalized(int[] text, int from, int to, AddedTokenFinder finder, TokenList tokens) {
    ComposedText part = ComposedText.of(text, from, to, vocabulary.layout.composes());
    int start = 0;
    for (AddedTokenFinder.Match match : finder.find(part.codes, 0, part.codes.length)) {
      addTokens(part, start, match.start, tokens);
      int[] span = span(part.codes, match.start, match.end);
      int end = part.end(span[1]);
      tokens.add(match.token.id, span[0] < span[1] ? part.start(span[0]) : end, end);
      start = match.end;
    }
    addTokens(part, start, part.codes.length, tokens);
  }

  @Override
  void addTokens(int[] text, int from, int to, TokenList tokens) {
    ComposedText part = ComposedText.of(text, from, to, vocabulary.layout.composes());
    addTokens(part, 0, part.codes.length, tokens);
  }

  private void addTokens(ComposedText part, int from, int to, TokenList tokens) {
    if (from == to) {
      return;
    }
    // The added space belongs to the first character.
    int added = addPrefixSpace && part.codes[from] != ' ' ? 1 : 0;
    int[] codes = new int[to - from + added];
    codes[0] = ' ';
    System.arraycopy(part.codes, from, codes, added, to - from);
    // With a prefix, the first token keeps a single space, as in the library.
    boolean keepsSpace = addPrefixSpace && tokens.isEmpty();
    int shift = from - added;
    for (int begin = 0; begin < codes.length; ) {
      int behind = wordEnd(codes, begin, codes.length);
      new ByteBpeWord(codes, begin, behind, vocabulary)
          .addTokens(
              (id, first, last, leading, trailing) -> {
                int start = part.start(Math.max(first + shift, from));
                int end = part.end(Math.max(last + shift, from + 1));
                if (!(keepsSpace && start == 0 && leading == 1)) {
                  start = Math.min(start + leading, end);
                }
                tokens.add(id, start, Math.max(end - trailing, start));
              });
      begin = behind;
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
