package org.pocketbert.tokenizer;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;

/** A WordPiece vocabulary. The id of a token is its line in the file, counted from 0. */
public final class Vocabulary {
  static final String PAD = "[PAD]";
  static final String UNK = "[UNK]";
  static final String CLS = "[CLS]";
  static final String SEP = "[SEP]";
  static final String MASK = "[MASK]";
  static final String[] SPECIAL_TOKENS = {PAD, UNK, CLS, SEP, MASK};

  // tensorflow-text stores a token's length in eight bits, so the Python tokenizer has this limit.
  private static final int MAX_TOKEN_BYTES = 255;
  private static final int MAX_LISTED = 5;

  private final Map<String, Integer> ids = new HashMap<>();
  private final int longestPiece;

  /**
   * Creates a vocabulary from its tokens.
   *
   * @param tokens in the order of their ids
   * @throws UserError lists all problems: missing special tokens; repeated, empty or too long tokens; control
   *     characters
   */
  public Vocabulary(List<String> tokens) {
    List<String> problems = new ArrayList<>();
    List<String> repeated = new ArrayList<>();
    List<String> empty = new ArrayList<>();
    List<String> tooLong = new ArrayList<>();
    List<String> controls = new ArrayList<>();
    int longest = 0;
    for (int id = 0; id < tokens.size(); id++) {
      String token = tokens.get(id);
      Integer earlier = ids.put(token, id);
      if (token.isEmpty()) {
        empty.add(String.valueOf(id + 1));
      } else if (earlier != null) {
        repeated.add("'" + token + "' in lines " + (earlier + 1) + ", " + (id + 1));
      }
      if (token.getBytes(StandardCharsets.UTF_8).length > MAX_TOKEN_BYTES) {
        tooLong.add(String.valueOf(id + 1));
      }
      if (hasControl(token)) {
        controls.add(String.valueOf(id + 1));
      }
      longest = Math.max(longest, token.length());
    }
    List<String> missing = new ArrayList<>();
    for (String token : SPECIAL_TOKENS) {
      if (!ids.containsKey(token)) {
        missing.add(token);
      }
    }
    if (!missing.isEmpty()) {
      problems.add(
          "it must have " + String.join(" ", SPECIAL_TOKENS) + "; received " + tokens.size() + " tokens without "
              + String.join(" ", missing));
    }
    if (!repeated.isEmpty()) {
      problems.add("tokens must be unique; received " + some(repeated));
    }
    if (!empty.isEmpty()) {
      problems.add("tokens must not be empty; received empty lines " + some(empty));
    }
    if (!controls.isEmpty()) {
      problems.add("tokens must not have control characters; received some in lines " + some(controls));
    }
    if (!tooLong.isEmpty()) {
      problems.add(
          "tokens must have at most " + MAX_TOKEN_BYTES + " bytes; received longer ones in lines " + some(tooLong));
    }
    UserError.throwIfAny(problems, "vocabulary");
    longestPiece = longest;
  }

  /**
   * Reads the content of a vocab.txt: one token per line in UTF-8. Lines end with LF, CR LF or CR.
   *
   * @throws UserError if it is not UTF-8; see also the constructor
   */
  public static Vocabulary parse(byte[] content) {
    String text;
    try {
      text =
          StandardCharsets.UTF_8
              .newDecoder()
              .onMalformedInput(CodingErrorAction.REPORT)
              .decode(ByteBuffer.wrap(content))
              .toString();
    } catch (CharacterCodingException error) {
      throw new UserError("vocabulary: it must be UTF-8; received something else; convert the file");
    }
    List<String> tokens = new ArrayList<>();
    int start = 0;
    for (int i = 0; i < text.length(); i++) {
      char character = text.charAt(i);
      if (character == '\n' || character == '\r') {
        tokens.add(text.substring(start, i));
        if (character == '\r' && i + 1 < text.length() && text.charAt(i + 1) == '\n') {
          i++;
        }
        start = i + 1;
      }
    }
    if (start < text.length()) {
      tokens.add(text.substring(start));
    }
    return new Vocabulary(tokens);
  }

  /** Returns the number of tokens. */
  public int size() {
    return ids.size();
  }

  /** Returns the id of a token, or -1. */
  public int id(String token) {
    Integer id = ids.get(token);
    return id == null ? -1 : id;
  }

  /** Returns the length of the longest token in UTF-16 units. */
  int longestPiece() {
    return longestPiece;
  }

  /** Whether a token has control characters, which are the same in every Unicode version. */
  private static boolean hasControl(String token) {
    return token.chars().anyMatch(each -> each < 0x20 || (each >= 0x7F && each < 0xA0));
  }

  static String some(List<String> items) {
    int shown = Math.min(items.size(), MAX_LISTED);
    String more = shown < items.size() ? " and " + (items.size() - shown) + " more" : "";
    return String.join(", ", items.subList(0, shown)) + more;
  }
}
