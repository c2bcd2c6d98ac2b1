package org.pocketbert.tokenizer;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.Test;
import org.pocketbert.UserError;

/** Compares the tokenizer with values worked out by hand, as in tests/pocketbert/tokenizers. */
public class WordPieceTokenizerTest {
  private static final int PAD = 0;
  private static final int UNK = 1;
  private static final int CLS = 2;
  private static final int SEP = 3;
  private static final int THE = 5;
  private static final int CAT = 6;
  private static final int S = 7;
  private static final int SAT = 8;
  private static final int ON = 10;
  private static final int DOT = 11;
  private static final int ONE = 12;

  private static Vocabulary vocabulary(String... more) {
    List<String> pieces = new ArrayList<>(Arrays.asList(Vocabulary.SPECIAL_TOKENS));
    pieces.addAll(Arrays.asList(more));
    return new Vocabulary(pieces);
  }

  private static WordPieceTokenizer tokenizer() {
    return new WordPieceTokenizer(
        vocabulary("the", "cat", "##s", "sat", "##urn", "on", ".", "一"), true, true);
  }

  @Test
  public void offsetsPointIntoTheGivenText() {
    // A zero-width space, accents, a special token, an ideograph without spaces, an accent that stands alone.
    Tokens tokens = tokenizer().tokenize("\u200bTHE  çåţš[SEP]一on\u0301.");
    assertArrayEquals(new int[] {THE, CAT, S, SEP, ONE, ON, DOT}, tokens.ids);
    assertArrayEquals(new int[] {1, 6, 9, 10, 15, 16, 19}, tokens.starts);
    assertArrayEquals(new int[] {4, 9, 10, 15, 16, 18, 20}, tokens.ends);
  }

  @Test
  public void optionsKeepAccentsAndJoinIdeographs() {
    Vocabulary vocabulary = vocabulary("é", "e", "É", "i\u0307", "一", "一丁");
    String text = "É İ 一丁";
    assertArrayEquals(new int[] {5, 8, 9, UNK}, ids(vocabulary, new TokenizerOptions(true, false, true), text));
    assertArrayEquals(new int[] {7, UNK, 10}, ids(vocabulary, new TokenizerOptions(false, false, false), text));
    assertArrayEquals(new int[] {6, UNK, 10}, ids(vocabulary, new TokenizerOptions(true, true, false), text));
    assertArrayEquals(new int[] {UNK, UNK, 9, UNK}, ids(vocabulary, new TokenizerOptions(false, true, true), text));
  }

  private static int[] ids(Vocabulary vocabulary, TokenizerOptions options, String text) {
    return new WordPieceTokenizer(vocabulary, options, true).tokenize(text).ids;
  }

  @Test
  public void offsetsCountCodePoints() {
    // U+1D51E, a letter that no token has, takes two UTF-16 units.
    Tokens tokens = tokenizer().tokenize("\uD835\uDD1E cat");
    assertArrayEquals(new int[] {UNK, CAT}, tokens.ids);
    assertArrayEquals(new int[] {0, 2}, tokens.starts);
    assertArrayEquals(new int[] {1, 5}, tokens.ends);
  }

  @Test
  public void loneSurrogatesVanishAndCount() {
    Tokens tokens = tokenizer().tokenize("\uD800cat the\uDFFF");
    assertArrayEquals(new int[] {CAT, THE}, tokens.ids);
    assertArrayEquals(new int[] {1, 5}, tokens.starts);
    assertArrayEquals(new int[] {4, 8}, tokens.ends);
  }

  @Test
  public void literalSpecialTokensCanBeText() {
    Vocabulary vocabulary = vocabulary("cat", "[", "]", "sep");
    String text = "cat[SEP]";
    assertArrayEquals(new int[] {5, 3}, new WordPieceTokenizer(vocabulary, true, true).tokenize(text).ids);
    assertArrayEquals(new int[] {5, 6, 8, 7}, new WordPieceTokenizer(vocabulary, true, false).tokenize(text).ids);
  }

  @Test
  public void casedTextKeepsCaseAndAccents() {
    WordPieceTokenizer tokenizer = new WordPieceTokenizer(vocabulary("Cat", "Ça"), false, true);
    assertArrayEquals(new int[] {5, UNK, 6, UNK}, tokenizer.tokenize("Cat cat Ça ça").ids);
  }

  @Test
  public void marksArePutInCanonicalOrder() {
    // U+302E has combining class 224, U+1B44 has 9; both are spacing marks, which are not dropped.
    WordPieceTokenizer tokenizer = new WordPieceTokenizer(vocabulary("a\u1b44\u302e"), true, true);
    assertArrayEquals(new int[] {5}, tokenizer.tokenize("a\u302e\u1b44").ids);
    // The accent, now last, takes the fourth place and goes with it.
    assertArrayEquals(new int[] {3}, tokenizer.tokenize("a\u302e\u0301\u1b44").ends);
    assertArrayEquals(new int[] {UNK}, tokenizer.tokenize("a\u302ex\u1b44").ids);
  }

  @Test
  public void longInputsTakeLinearTime() {
    StringBuilder text = new StringBuilder("a");
    for (int i = 0; i < 500_000; i++) {
      text.append("\u0301\u0323");
    }
    assertArrayEquals(new int[] {UNK}, tokenizer().tokenize(text.toString()).ids);
    Tokens tokens = tokenizer().tokenize(new String(new char[1_000_000]).replace('\0', 's'));
    assertArrayEquals(new int[] {UNK}, tokens.ids);
    assertArrayEquals(new int[] {1_000_000}, tokens.ends);
  }

  @Test
  public void shortestFittingLengthIsUsed() {
    WordPieceTokenizer tokenizer = tokenizer();
    assertArrayEquals(new int[] {CLS, THE, CAT, SEP}, tokenizer.encode("the cat", null, 4, 6).wordIds);
    assertArrayEquals(new int[] {CLS, THE, CAT, S, SEP, PAD}, tokenizer.encode("the cats", null, 4, 6).wordIds);
    assertArrayEquals(new int[] {CLS, THE, CAT, S, SAT, SEP}, tokenizer.encode("the cats sat.", null, 4, 6).wordIds);
  }

  @Test
  public void longerTextOfPairIsTruncated() {
    ModelInputs inputs = tokenizer().encode("the", "sat on the cat", 6);
    assertArrayEquals(new int[] {CLS, THE, SEP, SAT, ON, SEP}, inputs.wordIds);
    assertArrayEquals(new int[] {1, 1, 1, 1, 1, 1}, inputs.mask);
    assertArrayEquals(new int[] {0, 0, 0, 1, 1, 1}, inputs.typeIds);
    UserError error = assertThrows(UserError.class, () -> tokenizer().encode("the", "cat", 2));
    assertEquals("a length must have room for 3 special tokens; received [2]", error.getMessage());
  }

  @Test
  public void lastTokensAreKept() {
    Tokenizer tail = tokenizer().cutting(Truncation.parse("tail"));
    assertArrayEquals(new int[] {CLS, SAT, ON, SEP}, tail.encode("the cat sat on", null, 4).wordIds);
    assertArrayEquals(new int[] {CLS, CAT, SEP, SAT, ON, SEP}, tail.encode("the cat", "the cat sat on", 6).wordIds);
    assertArrayEquals(new int[] {CLS, THE, CAT, SEP}, tail.encode("the cat", null, 4, 6).wordIds);
    assertArrayEquals(new int[] {CLS, ON, SEP, PAD}, tail.cut(tail.tokenize("the cat sat on"), 1, 4).wordIds);
  }

  @Test
  public void firstAndLastTokensAreKept() {
    Tokenizer both = tokenizer().cutting(Truncation.parse("head-tail:2"));
    assertArrayEquals(new int[] {CLS, THE, CAT, DOT, SEP}, both.encode("the cats sat on.", null, 5).wordIds);
    assertArrayEquals(new int[] {CLS, THE, SEP}, both.encode("the cats sat on.", null, 3).wordIds);
    assertArrayEquals(new int[] {CLS, THE, SEP, CAT, S, SEP}, both.encode("the cat", "cats sat on.", 6).wordIds);
  }

  @Test
  public void secondTextIsCut() {
    Tokenizer second = tokenizer().cutting(Truncation.parse("only-second"));
    assertArrayEquals(new int[] {CLS, THE, CAT, SEP, SAT, SEP}, second.encode("the cat", "sat on the", 6).wordIds);
    assertArrayEquals(new int[] {CLS, THE, CAT, S, SEP, SEP}, second.encode("the cats sat", "on", 6).wordIds);
    assertArrayEquals(new int[] {CLS, THE, CAT, SEP}, second.encode("the cat sat", null, 4).wordIds);
    String message = assertThrows(UserError.class, () -> Truncation.parse("head-tail:0")).getMessage();
    assertEquals("truncation must be tail, head-tail:N or only-second; received head-tail:0", message);
  }

  @Test
  public void secondTextKeepsTheOddToken() {
    int[] ids = tokenizer().encode("the cat", "sat on", 6).wordIds;
    assertArrayEquals(new int[] {CLS, THE, SEP, SAT, ON, SEP}, ids);
  }

  @Test
  public void wordsHaveAtMost100Characters() {
    // Two UTF-16 units a character.
    String letter = "\uD835\uDD1E";
    WordPieceTokenizer tokenizer = new WordPieceTokenizer(vocabulary(letter, "##" + letter), true, true);
    assertEquals(100, tokenizer.tokenize(new String(new char[100]).replace("\0", letter)).ids.length);
    assertArrayEquals(new int[] {UNK}, tokenizer.tokenize(new String(new char[101]).replace("\0", letter)).ids);
  }

  @Test
  public void allVocabularyProblemsAreListed() {
    byte[] content = "[PAD]\na\na\n\nb\n".getBytes(StandardCharsets.UTF_8);
    String message = assertThrows(UserError.class, () -> Vocabulary.parse(content)).getMessage();
    assertTrue(message, message.contains("without [UNK] [CLS] [SEP] [MASK]"));
    assertTrue(message, message.contains("'a' in lines 2, 3"));
    assertTrue(message, message.contains("empty lines 4"));
    byte[] latin = {'a', (byte) 0xe9, '\n'};
    assertTrue(assertThrows(UserError.class, () -> Vocabulary.parse(latin)).getMessage().contains("UTF-8"));
    byte[] withNull = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\0\n".getBytes(StandardCharsets.UTF_8);
    message = assertThrows(UserError.class, () -> Vocabulary.parse(withNull)).getMessage();
    assertEquals("vocabulary: tokens must not have control characters; received some in lines 6", message);
  }

  @Test
  public void threeLineEndingsAreAccepted() {
    String text = String.join("\r\n", Vocabulary.SPECIAL_TOKENS) + "\ra\u2028b\nc";
    Vocabulary vocabulary = Vocabulary.parse(text.getBytes(StandardCharsets.UTF_8));
    assertEquals(7, vocabulary.size());
    assertEquals(5, vocabulary.id("a\u2028b"));
    assertEquals(6, vocabulary.id("c"));
  }
}
