package org.pocketbert.engine;

/** The part of a graph that a delegate runs. */
public final class Delegation {
  /** The delegate, for example {@code XNNPACK}. */
  public final String name;

  /** Number of operators in the first graph that it runs. */
  public final int delegatedOps;

  /** Number of operators in that graph. */
  public final int totalOps;

  /** A delegation. */
  public Delegation(String name, int delegatedOps, int totalOps) {
    this.name = name;
    this.delegatedOps = delegatedOps;
    this.totalOps = totalOps;
  }

  /**
   * Derives a delegation from the number of steps in a runtime's plan.
   *
   * @param name the only delegate
   * @param totalOps number of operators in the graph; without a delegate, each is a step
   * @param planLength number of steps; a delegated part of the graph becomes one step
   * @return the smallest number of delegated operators for this plan, exact if they form one part; null if none or only
   *     one operator was delegated
   */
  public static Delegation ofPlan(String name, int totalOps, int planLength) {
    return planLength < totalOps ? new Delegation(name, totalOps - planLength + 1, totalOps) : null;
  }
}
