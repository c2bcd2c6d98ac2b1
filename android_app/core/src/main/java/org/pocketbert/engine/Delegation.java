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

  /**
   * What a runtime's plan says that tells nothing but how many steps are left.
   *
   * @param name the only library that was offered the graph
   * @param totalOps operators of the graph, each of which is a step where nothing was taken
   * @param planLength steps that are left; a library that takes a part of the graph puts one step in its place
   * @return the fewest operators that explain it: all that were taken, if they are one part; null if nothing was taken,
   *     or one operator at most
   */
  public static Delegation ofPlan(String name, int totalOps, int planLength) {
    return planLength < totalOps ? new Delegation(name, totalOps - planLength + 1, totalOps) : null;
  }
}
