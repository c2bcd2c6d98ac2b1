package org.pocketbert.tokenizer;

import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.pocketbert.UserError;

/** How texts that are longer than the longest length are cut: {@code truncation} in bundle.json, as in Python. */
public final class Truncation {
  /** Keeps the first tokens; of two texts, cuts the longer one first. For bundles that name no other truncation. */
  public static final Truncation HEAD = new Truncation(Integer.MAX_VALUE, Integer.MAX_VALUE, false);

  private static final Pattern HEAD_TAIL = Pattern.compile("head-tail:([1-9][0-9]{0,5})");

  // Tokens in front of the cut: of a single text, and of each text of a pair.
  private final int head;
  private final int headOfPair;
  private final boolean onlySecond;

  private Truncation(int head, int headOfPair, boolean onlySecond) {
    this.head = head;
    this.headOfPair = headOfPair;
    this.onlySecond = onlySecond;
  }

  /**
   * Reads a value of bundle.json.
   *
   * @param value {@code tail} keeps the last tokens; {@code head-tail:N} the first N tokens and the last ones of a single
   *     text; {@code only-second} cuts the second text of a pair
   * @throws UserError if it is another value
   */
  public static Truncation parse(String value) {
    Matcher headTail = HEAD_TAIL.matcher(value);
    if (headTail.matches()) {
      return new Truncation(Integer.parseInt(headTail.group(1)), Integer.MAX_VALUE, false);
    }
    if (value.equals("tail")) {
      return new Truncation(0, 0, false);
    }
    if (value.equals("only-second")) {
      return new Truncation(Integer.MAX_VALUE, Integer.MAX_VALUE, true);
    }
    throw new UserError("truncation must be tail, head-tail:N or only-second; received " + value);
  }

  /** Returns how many tokens two texts keep of {@code available}; an absent second text has length 0. */
  int[] lengths(int first, int second, boolean pair, int available) {
    if (first + second <= available) {
      return new int[] {first, second};
    }
    if (!pair || onlySecond) {
      int kept = Math.min(first, available);
      return new int[] {kept, Math.min(second, available - kept)};
    }
    // As with longest_first in transformers: if both are too long, each keeps half, and the longer one the odd token.
    int shorter = Math.min(Math.min(first, second), available / 2);
    int longer = available - shorter;
    return first > second ? new int[] {longer, shorter} : new int[] {shorter, longer};
  }

  /** Returns the tokens that a text keeps; {@code count} is their number. */
  int[] cut(int[] tokens, int count, boolean pair) {
    int before = Math.min(pair ? headOfPair : head, count);
    int[] rest = Arrays.copyOf(tokens, count);
    System.arraycopy(tokens, tokens.length - (count - before), rest, before, count - before);
    return rest;
  }
}
