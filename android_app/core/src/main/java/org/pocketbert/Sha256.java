package org.pocketbert;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** SHA-256 in lower-case hexadecimal. */
public final class Sha256 {
  private Sha256() {}

  /** Returns the digest of a buffer's remaining bytes; its position stays. */
  public static String of(ByteBuffer buffer) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      digest.update(buffer.duplicate());
      StringBuilder text = new StringBuilder();
      for (byte value : digest.digest()) {
        text.append(Character.forDigit(value >> 4 & 15, 16)).append(Character.forDigit(value & 15, 16));
      }
      return text.toString();
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException("every Java and every Android has SHA-256", error);
    }
  }
}
