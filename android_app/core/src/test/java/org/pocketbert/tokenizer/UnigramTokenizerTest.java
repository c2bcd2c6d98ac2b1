package org.pocketbert.tokenizer;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.junit.Test;
import org.pocketbert.UserError;

/** Expected values worked out by hand; tests/android/test_java_unigram.py compares with sentencepiece. */
public class UnigramTokenizerTest {
  private static final byte[] TRAINER = {18, 2, 24, 1};
  // Ids 4, 5, 6 and 7.
  private static final String[] TOKENS = {"▁", "a", "▁ab", "b"};
  private static final float[] SCORES = {-2, -3, -4, -3};

  private static byte[] field(int number, byte[]... parts) {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    for (byte[] part : parts) {
      content.write(part, 0, part.length);
    }
    ByteBuffer out = ByteBuffer.allocate(content.size() + 6).put((byte) (number << 3 | 2));
    int length = content.size();
    for (; length > 127; length >>= 7) {
      out.put((byte) (length & 127 | 128));
    }
    out.put((byte) length).put(content.toByteArray());
    return Arrays.copyOf(out.array(), out.position());
  }

  private static byte[] token(String token, float score, int type) {
    byte[] number = ByteBuffer.allocate(5).order(ByteOrder.LITTLE_ENDIAN).put((byte) 21).putFloat(score).array();
    return field(1, field(1, token.getBytes(StandardCharsets.UTF_8)), number, new byte[] {24, (byte) type});
  }

  /** A map with one entry: A becomes b and a. */
  private static byte[] characterMap() {
    ByteBuffer map = ByteBuffer.allocate(4 + 4 * 256 + 4).order(ByteOrder.LITTLE_ENDIAN).putInt(4 * 256);
    int[] units = new int[256];
    units[0] = 1 << 10;
    // The children of 0 have place 1 ^ label; the value of this one has place 1 ^ 'A' ^ 2.
    units[1 ^ 'A'] = 'A' | 1 << 8 | 2 << 10;
    units[1 ^ 'A' ^ 2] = 1 << 31;
    map.asIntBuffer().put(units);
    map.position(4 + 4 * 256);
    return map.put(new byte[] {'b', 'a', 0, 0}).array();
  }

  private static byte[] model(byte[] more, byte[] trainer, byte[] normalizer) {
    byte[][] parts = {
      token("<unk>", 0, 2), token("<s>", 0, 3), token("</s>", 0, 3), more, trainer, normalizer
    };
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    for (byte[] part : parts) {
      out.write(part, 0, part.length);
    }
    return out.toByteArray();
  }

  private static byte[] tokens() {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    for (int i = 0; i < TOKENS.length; i++) {
      byte[] token = token(TOKENS[i], SCORES[i], 1);
      out.write(token, 0, token.length);
    }
    return out.toByteArray();
  }

  private static byte[] model() {
    return model(tokens(), TRAINER, field(3, field(2, characterMap())));
  }

  private static UnigramTokenizer tokenizer(boolean specialTokensInText) {
    return new UnigramTokenizer(SentencePieceModel.parse(model()), specialTokensInText);
  }

  @Test
  public void bestPathAndSpansAreFound() {
    // A character that becomes two tokens, two unknown ones, a special token.
    Tokens tokens = tokenizer(true).tokenize("  ab   A b??a<mask>b ");
    assertArrayEquals(new int[] {6, 4, 7, 5, 4, 7, 3, 5, 8, 4, 7}, tokens.ids);
    assertArrayEquals(new int[] {2, 7, 7, 7, 9, 9, 10, 12, 13, 19, 19}, tokens.starts);
    assertArrayEquals(new int[] {4, 7, 8, 8, 9, 10, 12, 13, 19, 19, 20}, tokens.ends);
    assertEquals(0, tokenizer(true).tokenize("   ").ids.length);
    assertEquals(9, tokenizer(true).vocabSize());
  }

  @Test
  public void literalSpecialTokensCanBeText() {
    assertArrayEquals(new int[] {2}, tokenizer(true).tokenize("</s>").ids);
    assertArrayEquals(new int[] {4, 3}, tokenizer(false).tokenize("</s>").ids);
  }

  @Test
  public void truncatedFileIsOneError() {
    byte[] whole = model();
    for (int length = 0; length < whole.length; length++) {
      byte[] part = Arrays.copyOf(whole, length);
      String message = assertThrows(UserError.class, () -> SentencePieceModel.parse(part)).getMessage();
      assertTrue(message, message.startsWith("sentencepiece model: "));
    }
  }

  @Test
  public void foreignModelsAreRefused() {
    assertMessage("other bytes", model(tokens(), TRAINER, field(3, field(2, new byte[] {9, 9, 9, 9, 9}))));
    assertMessage("model_type must be 1; received 2", model(tokens(), new byte[] {18, 2, 24, 2}, field(3)));
    assertMessage("escape_whitespaces must be 1", model(tokens(), TRAINER, new byte[] {26, 2, 40, 0}));
    assertMessage("received again: a", model(token("a", 1, 1), token("a", 1, 1), model(tokens(), TRAINER, field(3))));
    assertMessage("of type NORMAL; received others: x", model(token("x", 1, 6), TRAINER, field(3)));
    assertMessage("received <mask>", model(token("<mask>", 1, 1), TRAINER, field(3)));
    assertMessage("1 empty ones", model(token("", 1, 1), TRAINER, field(3)));
    assertMessage("first tokens of XLM-R's models must be <unk>, <s> and </s>; received a of type 1", token("a", 1, 1));
    assertMessage("another format", "[PAD]\n[UNK]\n".getBytes(StandardCharsets.US_ASCII));
  }

  private static void assertMessage(String part, byte[] content) {
    String message = assertThrows(UserError.class, () -> SentencePieceModel.parse(content)).getMessage();
    assertTrue(message, message.contains(part));
  }

  @Test
  public void aMillionCharactersTakeNoMinutes() {
    String text = new String(new char[500_000]).replace("\0", "a?");
    assertEquals(1_000_001, tokenizer(true).tokenize(text).ids.length);
  }
}
