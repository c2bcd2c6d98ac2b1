package org.pocketbert.bundle;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import org.junit.Test;

public class SafetensorsTest {
  private static final String A = "\"a\": {\"dtype\": \"F32\", \"shape\": [1, 3], \"data_offsets\": [4, 16]}";
  private static final String B = "\"b\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}";

  private static byte[] file(String header) {
    byte[] data = new byte[16];
    ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN).putFloat(0.5f).putFloat(-2).putFloat(3).putFloat(7);
    return BundleFolder.safetensors(header, data);
  }

  private static String refusal(byte[] content) {
    return assertThrows(CheckedFile.Unusable.class, () -> Safetensors.read(ByteBuffer.wrap(content))).getMessage();
  }

  @Test
  public void tensorsAreViews() throws Exception {
    byte[] content = file("{" + A + ", " + B + "}");
    Map<String, Safetensors.Tensor> tensors = Safetensors.read(ByteBuffer.wrap(content));
    assertArrayEquals(new int[] {1, 3}, tensors.get("a").shape);
    assertEquals(3, tensors.get("a").values.limit());
    assertEquals(-2, tensors.get("a").values.get(0), 0);
    assertEquals(7, tensors.get("a").values.get(2), 0);
    assertEquals(0.5, tensors.get("b").values.get(0), 0);
    content[content.length - 1] ^= (byte) 0x80;
    assertEquals(-7, tensors.get("a").values.get(2), 0);
  }

  @Test
  public void headersThatLieAreRefused() {
    String[] headers = {
      "", "{", "[]", "1", "{" + A + "}", "{" + A + ", " + A + "}", "{" + A + ", " + B.replace("[0, 4]", "[4, 8]") + "}",
      "{" + A + ", " + B.replace("F32", "F16") + "}", "{" + A + ", " + B.replace("[1]", "[2]") + "}",
      "{" + A + ", " + B.replace("[1]", "[4294967297, 4294967296]") + "}",
      "{" + A + ", " + B.replace("[1]", "[-1]") + "}", "{" + A + ", " + B.replace("[1]", "1") + "}",
      "{" + A + ", " + B.replace("[0, 4]", "[0, 4, 8]") + "}", "{" + A + ", " + B.replace("[0, 4]", "[4, 0]") + "}",
      "{" + A.replace("16]", "9007199254740992]") + ", " + B + "}", "{" + A + ", " + B.replace("}", ", \"x\": 1}") + "}",
      "{" + A + ", " + B + ", \"__metadata__\": {\"x\": \"y\"}}", "{\"a\": " + new String(new char[99]).replace("\0", "["),
    };
    for (String header : headers) {
      assertTrue(header, refusal(file(header)).startsWith("must be a safetensors file"));
    }
  }

  @Test
  public void lengthsThatLieAreRefused() {
    byte[] content = file("{" + A + ", " + B + "}");
    for (int i = 2; i < 8; i++) {
      byte[] changed = content.clone();
      changed[i] = (byte) 0xff;
      assertTrue(refusal(changed).contains("header of at most 1048576 bytes"));
    }
    assertTrue(refusal(new byte[7]).contains("it has 7 bytes"));
    byte[] cut = Arrays.copyOf(content, content.length - 1);
    assertTrue(refusal(cut).startsWith("must be a safetensors file"));
    byte[] more = Arrays.copyOf(content, content.length + 4);
    assertTrue(refusal(more).contains("without gaps or overlaps"));
  }

  @Test
  public void changedFileIsReadOrRefused() {
    byte[] content = file("{" + A + ", " + B + "}");
    Random random = new Random(5);
    int refused = 0;
    for (int i = 0; i < 2000; i++) {
      byte[] changed = content.clone();
      for (int changes = 1 + random.nextInt(3); changes > 0; changes--) {
        changed[random.nextInt(changed.length - 16)] = (byte) random.nextInt(256);
      }
      try {
        Safetensors.read(ByteBuffer.wrap(changed));
      } catch (CheckedFile.Unusable error) {
        refused++;
      }
    }
    assertTrue(refused > 1500);
  }
}
