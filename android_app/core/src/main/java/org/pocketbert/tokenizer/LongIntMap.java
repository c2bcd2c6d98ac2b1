package org.pocketbert.tokenizer;

import java.util.Arrays;

/** Maps primitive longs to non-negative integers, with open addressing in two arrays. */
final class LongIntMap {
  static final int ABSENT = -1;

  // 2^64 divided by the golden ratio spreads neighbouring keys (Knuth, The Art of Computer Programming 6.4).
  private static final long MULTIPLIER = 0x9E3779B97F4A7C15L;
  private long[] keys;
  private int[] values;
  private int shift;
  private int size;

  /** Creates a map for this number of keys; it grows if needed. */
  LongIntMap(int expected) {
    int bits = 4;
    while ((1L << bits) < 2L * expected) {
      bits++;
    }
    allocate(bits);
  }

  private void allocate(int bits) {
    keys = new long[1 << bits];
    values = new int[1 << bits];
    Arrays.fill(values, ABSENT);
    shift = 64 - bits;
  }

  /** Returns the value of a key, or {@link #ABSENT}. */
  int get(long key) {
    return values[slot(key)];
  }

  /** Sets a value if the key has none. Returns the previous value, or {@link #ABSENT}. */
  int putIfAbsent(long key, int value) {
    int slot = slot(key);
    int present = values[slot];
    if (present == ABSENT) {
      keys[slot] = key;
      values[slot] = value;
      if (++size > keys.length - keys.length / 3) {
        grow();
      }
    }
    return present;
  }

  private int slot(long key) {
    int slot = (int) (key * MULTIPLIER >>> shift);
    while (values[slot] != ABSENT && keys[slot] != key) {
      slot = (slot + 1) & (keys.length - 1);
    }
    return slot;
  }

  private void grow() {
    long[] oldKeys = keys;
    int[] oldValues = values;
    allocate(65 - shift);
    for (int i = 0; i < oldKeys.length; i++) {
      if (oldValues[i] != ABSENT) {
        int slot = slot(oldKeys[i]);
        keys[slot] = oldKeys[i];
        values[slot] = oldValues[i];
      }
    }
  }
}
