package org.pocketbert.tokenizer;

import java.util.Arrays;

/** A list of primitive integers. */
final class IntList {
  private int[] values = new int[32];
  private int size;

  void add(int value) {
    if (size == values.length) {
      values = Arrays.copyOf(values, 2 * size);
    }
    values[size++] = value;
  }

  int get(int index) {
    return values[index];
  }

  void set(int index, int value) {
    values[index] = value;
  }

  int size() {
    return size;
  }

  int[] toArray() {
    return Arrays.copyOf(values, size);
  }

  void truncate(int newSize) {
    size = newSize;
  }
}
