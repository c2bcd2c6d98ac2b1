package org.pocketbert.tokenizer;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.Test;
import org.pocketbert.UserError;
import org.pocketbert.json.Json;

/** Expected values worked out by hand; tests/android/test_java_byte_bpe.py compares with tokenizers. */
public class ByteBpeTokenizerTest {
  private static final String MERGES = "#version: 0.2\na b\nĠ ab\nĠ Ġ\n";

  private static Map<String, Object> ids() {
    Map<String, Object> ids = new LinkedHashMap<>();
    for (String token : SpecialTokens.ALL) {
      ids.put(token, ids.size());
    }
    int more = 0x100;
    for (int i = 0; i < 256; i++) {
      boolean printable = (i > 0x20 && i < 0x7F) || (i > 0xA0 && i != 0xAD);
      ids.put(String.valueOf((char) (printable ? i : more++)), ids.size());
    }
    for (String token : new String[] {"ab", "Ġab", "ĠĠ"}) {
      ids.put(token, ids.size());
    }
    return ids;
  }

  private static ByteBpeVocabulary vocabulary(Map<String, Object> ids, String merges) {
    return ByteBpeVocabulary.parse(
        Json.write(ids).getBytes(StandardCharsets.UTF_8), merges.getBytes(StandardCharsets.UTF_8));
  }

  private static int id(String token) {
    return (Integer) ids().get(token);
  }

  @Test
  public void spansCoverCharactersWithoutSpaces() {
    Tokens tokens = new ByteBpeTokenizer(vocabulary(ids(), MERGES), true).tokenize("ab ab   é<mask>");
    assertArrayEquals(
        new int[] {id("ab"), id("Ġab"), id("ĠĠ"), id("Ġ"), id("Ã"), id("©"), 4}, tokens.ids);
    assertArrayEquals(new int[] {0, 3, 7, 8, 8, 8, 9}, tokens.starts);
    assertArrayEquals(new int[] {2, 5, 7, 8, 9, 9, 15}, tokens.ends);
  }

  @Test
  public void literalSpecialTokensCanBeText() {
    ByteBpeVocabulary vocabulary = vocabulary(ids(), MERGES);
    assertArrayEquals(new int[] {0}, new ByteBpeTokenizer(vocabulary, true).tokenize("<s>").ids);
    int[] characters = {id("<"), id("s"), id(">")};
    assertArrayEquals(characters, new ByteBpeTokenizer(vocabulary, false).tokenize("<s>").ids);
  }

  @Test
  public void pairsHaveTwoSeparators() {
    ModelInputs inputs = new ByteBpeTokenizer(vocabulary(ids(), MERGES), true).encode("ab", "abab ab", 7, 8);
    assertArrayEquals(new int[] {0, id("ab"), 2, 2, id("ab"), id("ab"), id("Ġab"), 2}, inputs.wordIds);
    assertArrayEquals(new int[8], inputs.typeIds);
    inputs = new ByteBpeTokenizer(vocabulary(ids(), MERGES), true).encode("ab", "ab", 9);
    assertArrayEquals(new int[] {0, id("ab"), 2, 2, id("ab"), 2, 1, 1, 1}, inputs.wordIds);
    assertArrayEquals(new int[] {1, 1, 1, 1, 1, 1, 0, 0, 0}, inputs.mask);
  }

  @Test
  public void aMillionLettersTakeNoMinutes() {
    String text = new String(new char[500_000]).replace("\0", "ab");
    assertEquals(500_000, new ByteBpeTokenizer(vocabulary(ids(), MERGES), true).tokenize(text).ids.length);
  }

  @Test
  public void contradictionsAreListedAtOnce() {
    Map<String, Object> ids = ids();
    ids.remove("ĠĠ");
    String message = assertThrows(UserError.class, () -> vocabulary(ids, MERGES + "a b\n")).getMessage();
    assertTrue(message, message.contains("merge 3 ('Ġ', 'Ġ') without 'ĠĠ'"));
    assertTrue(message, message.contains("1 repetitions"));
    message = assertThrows(UserError.class, () -> vocabulary(ids(), "a b c\n")).getMessage();
    assertTrue(message, message.contains("'a b c' in line 1"));
    ids.put("x2", 3);
    message = assertThrows(UserError.class, () -> vocabulary(ids, "")).getMessage();
    assertTrue(message, message.contains("each used once"));
    message = assertThrows(UserError.class, () -> ByteBpeVocabulary.parse(new byte[] {'['}, new byte[0])).getMessage();
    assertTrue(message, message.contains("vocab.json expected"));
    Map<String, Object> few = new LinkedHashMap<>();
    few.put("a", 0);
    message = assertThrows(UserError.class, () -> vocabulary(few, "")).getMessage();
    assertTrue(message, message.contains("without <s> <pad> </s> <unk> <mask>"));
    assertTrue(message, message.contains("without 255"));
  }
}
