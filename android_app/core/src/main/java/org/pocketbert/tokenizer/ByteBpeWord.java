package org.pocketbert.tokenizer;

import java.util.Arrays;

/** Merges the bytes of a word: each step merges the leftmost pair with the lowest rank. */
final class ByteBpeWord {
  private static final int GONE = -1;
  private static final byte SPACE = ' ';

  private final ByteBpeVocabulary vocabulary;
  private final byte[] bytes;

  /** Position of each byte's code point. */
  private final int[] origins;

  /** The token that starts at each byte, or {@link #GONE}. */
  private final int[] ids;

  /** End of the token that starts at a byte. */
  private final int[] ends;

  /** Start of the token that ends before a byte. */
  private final int[] starts;

  // A binary heap of pairs. High bits: rank; low bits: position of the left token. The smallest number comes first.
  private long[] heap;
  private int heapSize;

  /** Creates a word from the code points between {@code from} and {@code to}. */
  ByteBpeWord(int[] text, int from, int to, ByteBpeVocabulary vocabulary) {
    this.vocabulary = vocabulary;
    bytes = Utf8.encode(text, from, to);
    int size = bytes.length;
    origins = new int[size];
    ids = new int[size];
    ends = new int[size];
    starts = new int[size];
    heap = new long[size];
    int origin = from - 1;
    for (int i = 0; i < size; i++) {
      // All bytes of a character except the first are 10xxxxxx.
      origin += (bytes[i] & 0xC0) == 0x80 ? 0 : 1;
      origins[i] = origin;
      ids[i] = vocabulary.byteId(bytes[i]);
      ends[i] = i + 1;
      starts[i] = i - 1;
    }
  }

  /** Receives a token: its code points from {@code first} to {@code behind}, and the spaces at both ends. */
  interface Receiver {
    void add(int id, int first, int behind, int leading, int trailing);
  }

  /** Merges, and adds the remaining tokens. */
  void addTokens(Receiver tokens) {
    for (int i = 0; i + 1 < bytes.length; i++) {
      push(i);
    }
    while (heapSize > 0) {
      long pair = pop();
      int left = (int) pair;
      int rank = (int) (pair >>> 32);
      // Skip pairs that changed since they were pushed; their new form was pushed too.
      if (ids[left] != GONE && rank(left) == rank) {
        merge(left, rank);
      }
    }
    for (int start = 0; start < bytes.length; start = ends[start]) {
      add(start, ends[start], tokens);
    }
  }

  private void merge(int left, int rank) {
    int right = ends[left];
    ids[left] = vocabulary.merged(rank);
    ids[right] = GONE;
    ends[left] = ends[right];
    if (ends[left] < bytes.length) {
      starts[ends[left]] = left;
      push(left);
    }
    if (left > 0) {
      push(starts[left]);
    }
  }

  /** Returns the rank of the pair with its left token at a position, or -1. */
  private int rank(int left) {
    int right = ends[left];
    return right == bytes.length ? LongIntMap.ABSENT : vocabulary.rank(ids[left], ids[right]);
  }

  private void add(int from, int to, Receiver tokens) {
    int leading = 0;
    while (from + leading < to && bytes[from + leading] == SPACE) {
      leading++;
    }
    int trailing = 0;
    while (to - trailing > from && bytes[to - trailing - 1] == SPACE) {
      trailing++;
    }
    tokens.add(ids[from], origins[from], origins[to - 1] + 1, leading, trailing);
  }

  private void push(int left) {
    int rank = rank(left);
    if (rank == LongIntMap.ABSENT) {
      return;
    }
    if (heapSize == heap.length) {
      heap = Arrays.copyOf(heap, 2 * heapSize);
    }
    long pair = (long) rank << 32 | left;
    int place = heapSize++;
    while (place > 0 && heap[(place - 1) / 2] > pair) {
      heap[place] = heap[(place - 1) / 2];
      place = (place - 1) / 2;
    }
    heap[place] = pair;
  }

  private long pop() {
    long first = heap[0];
    long last = heap[--heapSize];
    int place = 0;
    for (int child = 1; child < heapSize; child = 2 * place + 1) {
      if (child + 1 < heapSize && heap[child + 1] < heap[child]) {
        child++;
      }
      if (last <= heap[child]) {
        break;
      }
      heap[place] = heap[child];
      place = child;
    }
    heap[place] = last;
    return first;
  }
}
