package org.pocketbert.engine;

/** The part of a graph that an accelerating library took over. */
public final class Delegation {
  /** The library, for example {@code XNNPACK}. */
  public final String name;

  /** Operators of the file's first graph that it runs. */
  public final int delegatedOps;

  /** All operators of that graph. */
  public final int totalOps;

  /** A delegation. */
  public Delegation(String name, int delegatedOps, int totalOps) {
    this.name = name;
    this.delegatedOps = delegatedOps;
    this.totalOps = totalOps;
  }
}
