package org.pocketbert.tokenizer;

import java.util.Arrays;

/** Maps sequences of code points to ids, one code point at a time. Node 0 is the root. */
final class TokenTrie {
  static final int ROOT = 0;
  static final int NONE = -1;

  // Bits in a code point.
  private static final int CODE_BITS = 21;

  /** From a node and a code point to the next node. */
  private final LongIntMap edges;

  /** The id of the token that ends in each node, or {@link #NONE}. */
  private int[] ids;

  private int size = 1;

  /** Creates a trie for about this number of tokens. */
  TokenTrie(int tokens) {
    edges = new LongIntMap(2 * tokens);
    ids = new int[Math.max(16, 2 * tokens)];
    ids[ROOT] = NONE;
  }

  /** Returns the next node, or {@link #NONE}. */
  int next(int node, int code) {
    return edges.get((long) node << CODE_BITS | code);
  }

  /** Returns the id of the token that ends in a node, or {@link #NONE}. */
  int id(int node) {
    return ids[node];
  }

  /** Returns the node of a token, given as valid UTF-8 in a part of an array; adds it if needed. */
  int node(byte[] bytes, int from, int to) {
    int node = ROOT;
    for (int place = from; place < to; place += Utf8.length(bytes[place])) {
      long edge = (long) node << CODE_BITS | Utf8.decode(bytes, place);
      int next = edges.putIfAbsent(edge, size);
      if (next == LongIntMap.ABSENT) {
        if (size == ids.length) {
          ids = Arrays.copyOf(ids, 2 * size);
        }
        ids[size] = NONE;
        next = size++;
      }
      node = next;
    }
    return node;
  }

  void setId(int node, int id) {
    ids[node] = id;
  }
}
