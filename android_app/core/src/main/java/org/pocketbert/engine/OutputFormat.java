package org.pocketbert.engine;

import java.nio.ByteBuffer;

/** Size of an output, and how its bytes become numbers: float32, or int8 with a scale and a zero point. */
public final class OutputFormat {
  final int bytes;
  private final boolean isInt8;
  private final float scale;
  private final int zeroPoint;

  private OutputFormat(int bytes, boolean isInt8, float scale, int zeroPoint) {
    this.bytes = bytes;
    this.isInt8 = isInt8;
    this.scale = scale;
    this.zeroPoint = zeroPoint;
  }

  /** Numbers of 4 bytes. */
  public static OutputFormat float32(int bytes) {
    return new OutputFormat(bytes, false, 1, 0);
  }

  /** Numbers (value - zero point) * scale. */
  public static OutputFormat int8(int bytes, float scale, int zeroPoint) {
    return new OutputFormat(bytes, true, scale, zeroPoint);
  }

  /** Returns the numbers of an output's bytes, which are in the processor's order. */
  float[] values(ByteBuffer content) {
    float[] values = new float[isInt8 ? bytes : bytes / Float.BYTES];
    if (!isInt8) {
      content.asFloatBuffer().get(values);
      return values;
    }
    for (int i = 0; i < bytes; i++) {
      values[i] = scale * (content.get(i) - zeroPoint);
    }
    return values;
  }
}
