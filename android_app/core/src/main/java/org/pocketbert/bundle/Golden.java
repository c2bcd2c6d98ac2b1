package org.pocketbert.bundle;

import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** A golden example: a text, the ids of its first row, and the outputs of the float model and the file at export. */
public final class Golden {
  /** The text. */
  public final String text;

  /** The second text, or null. */
  public final String pair;

  /** Number of ids, including padding. */
  public final int length;

  /** Input name to {@link #length} ids. */
  public final Map<String, int[]> inputs;

  /** Output name to the float model's values; read them by index. */
  public final Map<String, FloatBuffer> outputs;

  /** Output name to the exported file's values; read them by index. */
  public final Map<String, FloatBuffer> exportedOutputs;

  private Golden(
      String text,
      String pair,
      int length,
      Map<String, int[]> inputs,
      Map<String, FloatBuffer> outputs,
      Map<String, FloatBuffer> exportedOutputs) {
    this.text = text;
    this.pair = pair;
    this.length = length;
    this.inputs = Collections.unmodifiableMap(inputs);
    this.outputs = Collections.unmodifiableMap(outputs);
    this.exportedOutputs = Collections.unmodifiableMap(exportedOutputs);
  }

  /** Creates the example of a line, with its first row on the length. */
  static Golden of(
      GoldenLine line,
      int length,
      int padId,
      Map<String, FloatBuffer> outputs,
      Map<String, FloatBuffer> exportedOutputs) {
    GoldenLine.Window window = line.windows.get(0);
    int[] ids = Arrays.copyOf(window.ids, length);
    Arrays.fill(ids, window.ids.length, length, padId);
    int[] mask = new int[length];
    Arrays.fill(mask, 0, window.ids.length, 1);
    Map<String, int[]> inputs = new LinkedHashMap<>();
    inputs.put(Bundle.WORD_IDS, ids);
    inputs.put(Bundle.MASK, mask);
    inputs.put(Bundle.TYPE_IDS, window.typeIds == null ? new int[length] : Arrays.copyOf(window.typeIds, length));
    return new Golden(line.text, line.pair, length, inputs, outputs, exportedOutputs);
  }

  /** Returns the example truncated or padded to another length, which must fit all tokens. */
  Golden at(int newLength, int padId) {
    return new Golden(text, pair, newLength, inputsAt(newLength, padId), outputs, exportedOutputs);
  }

  /** Number of tokens without padding. */
  public int tokenCount() {
    int count = 0;
    for (int value : inputs.get(Bundle.MASK)) {
      count += value;
    }
    return count;
  }

  private Map<String, int[]> inputsAt(int newLength, int padId) {
    Map<String, int[]> fitted = new LinkedHashMap<>();
    for (Map.Entry<String, int[]> input : inputs.entrySet()) {
      int[] values = Arrays.copyOf(input.getValue(), newLength);
      if (newLength > length && input.getKey().equals(Bundle.WORD_IDS)) {
        Arrays.fill(values, length, newLength, padId);
      }
      fitted.put(input.getKey(), values);
    }
    return fitted;
  }

  /** Number of values of an output without those of padding, which come last. */
  public int realValues(String output) {
    int count = outputs.get(output).limit();
    return TaskKind.isTokenOutput(output) ? count / length * tokenCount() : count;
  }

  /** The largest absolute value of the file's outputs. */
  public double largestOutput() {
    double largest = 0;
    for (FloatBuffer values : exportedOutputs.values()) {
      for (int i = 0; i < values.limit(); i++) {
        largest = Math.max(largest, Math.abs(values.get(i)));
      }
    }
    return largest;
  }
}
