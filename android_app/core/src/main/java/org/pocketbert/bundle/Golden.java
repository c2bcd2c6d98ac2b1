package org.pocketbert.bundle;

import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** An example of a bundle: a text, its ids, and what the file answered when it was exported. */
public final class Golden {
  /** The text. */
  public final String text;

  /** The second text, or null. */
  public final String pair;

  /** Places that the ids are padded to. */
  public final int length;

  /** Input name to {@link #length} ids. */
  public final Map<String, int[]> inputs;

  /** Output name to the exported file's answer. */
  public final Map<String, double[]> exportedOutputs;

  Golden(String text, String pair, int length, Map<String, int[]> inputs, Map<String, double[]> exportedOutputs) {
    this.text = text;
    this.pair = pair;
    this.length = length;
    this.inputs = Collections.unmodifiableMap(inputs);
    this.exportedOutputs = Collections.unmodifiableMap(exportedOutputs);
  }

  /** Tokens, padding not counted. */
  public int tokenCount() {
    int count = 0;
    for (int value : inputs.get(Bundle.MASK)) {
      count += value;
    }
    return count;
  }

  /** The inputs cut or padded to another length, which must hold all tokens. */
  Map<String, int[]> inputsAt(int newLength, int padId) {
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

  /** The largest value of an answer, by amount. */
  public double largestOutput() {
    double largest = 0;
    for (double[] values : exportedOutputs.values()) {
      for (double value : values) {
        largest = Math.max(largest, Math.abs(value));
      }
    }
    return largest;
  }
}
