package org.pocketbert.tokenizer;

/** Collects tokens. */
final class TokenList {
  private final IntList ids = new IntList();
  private final IntList starts = new IntList();
  private final IntList ends = new IntList();

  void add(int id, int start, int end) {
    ids.add(id);
    starts.add(start);
    ends.add(end);
  }

  boolean isEmpty() {
    return ids.size() == 0;
  }

  Tokens tokens() {
    return new Tokens(ids.toArray(), starts.toArray(), ends.toArray());
  }
}
