package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** All tokens to find in a text: first in the text itself, then in its normalized parts. */
final class AddedTokens {
  private static final int REPLACEMENT = 0xFFFD;

  /** Finds tokens in the text itself. */
  final AddedTokenFinder raw;

  /** Finds tokens in normalized text. */
  final AddedTokenFinder normalized;

  /** Normalizes the content of a token. */
  interface Normalizer {
    int[] normalize(int[] codes);
  }

  /**
   * Collects the tokens.
   *
   * @param special the special tokens of the kind
   * @param added the added tokens, which may give special tokens other flags
   * @param specialTokensInText whether special tokens in a text are tokens, or ordinary text
   */
  AddedTokens(
      List<AddedToken> special, List<AddedToken> added, boolean specialTokensInText, Normalizer normalizer) {
    raw = new AddedTokenFinder(specialTokensInText);
    normalized = new AddedTokenFinder(specialTokensInText);
    Map<String, AddedToken> tokens = new LinkedHashMap<>();
    for (AddedToken token : special) {
      tokens.put(token.content, token);
    }
    for (AddedToken token : added) {
      tokens.put(token.content, token);
    }
    // Of two tokens with one normalized form, the first one is found; special ones are first.
    List<AddedToken> ordered = new ArrayList<>();
    for (boolean first : new boolean[] {true, false}) {
      for (AddedToken token : tokens.values()) {
        if (token.special == first) {
          ordered.add(token);
        }
      }
    }
    for (AddedToken token : ordered) {
      if (token.normalized) {
        normalized.add(normalizer.normalize(token.codes()), token);
      } else {
        raw.add(token.codes(), token);
      }
    }
  }

  /** Returns the code points of a text; a lone surrogate becomes U+FFFD. */
  static int[] codePoints(String text) {
    int[] codes = new int[text.codePointCount(0, text.length())];
    int place = 0;
    for (int i = 0; i < codes.length; i++) {
      int code = text.codePointAt(place);
      place += Character.charCount(code);
      codes[i] = code >= 0xD800 && code < 0xE000 ? REPLACEMENT : code;
    }
    return codes;
  }
}
