package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.List;

/**
 * A tokenizer whose ids are positions in a list of offsets: the inputs that it makes tell where each of their tokens is in
 * its text. Special tokens and padding have position 0. It is not thread-safe.
 */
public final class TokenPositions extends Tokenizer {
  private final Tokenizer tokenizer;
  private final List<int[]> offsets = new ArrayList<>();

  /** Creates positions of a tokenizer's tokens. */
  public TokenPositions(Tokenizer tokenizer) {
    super(tokenizer);
    this.tokenizer = tokenizer;
    offsets.add(new int[2]);
  }

  @Override
  public Tokens tokenize(String text) {
    Tokens tokens = tokenizer.tokenize(text);
    int[] ids = new int[tokens.ids.length];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = offsets.size();
      offsets.add(new int[] {tokens.starts[i], tokens.ends[i]});
    }
    return new Tokens(ids, tokens.starts, tokens.ends);
  }

  /** Returns the start and the end, in code points, of the token with this position. */
  public int[] offsets(int position) {
    return offsets.get(position).clone();
  }
}
