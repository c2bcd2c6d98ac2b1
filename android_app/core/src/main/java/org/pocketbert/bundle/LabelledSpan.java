package org.pocketbert.bundle;

/** A span of a text that a token classifier found. */
public final class LabelledSpan {
  /** The part of the text. */
  public final String text;

  /** Its type, such as {@code LOC}. */
  public final String label;

  /** Offset of its first code point. */
  public final int start;

  /** Offset after its last code point. For an index into a Java string, use {@link String#offsetByCodePoints}. */
  public final int end;

  /** Mean probability of the tags of its words. */
  public final double probability;

  LabelledSpan(String text, String label, int start, int end, double probability) {
    this.text = text;
    this.label = label;
    this.start = start;
    this.end = end;
    this.probability = probability;
  }
}
