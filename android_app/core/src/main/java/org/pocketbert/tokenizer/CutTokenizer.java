package org.pocketbert.tokenizer;

/** A tokenizer that cuts long texts in another way. */
final class CutTokenizer extends Tokenizer {
  private final Tokenizer tokenizer;

  CutTokenizer(Tokenizer tokenizer, Truncation truncation) {
    super(tokenizer, truncation);
    this.tokenizer = tokenizer;
  }

  @Override
  public Tokens tokenize(String text) {
    return tokenizer.tokenize(text);
  }
}
