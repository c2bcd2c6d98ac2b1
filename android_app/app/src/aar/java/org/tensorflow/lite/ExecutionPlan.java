package org.tensorflow.lite;

/** Reads a package-private value, so it is in the archive's package. */
public final class ExecutionPlan {
  private ExecutionPlan() {}

  /** Steps in the first graph's plan: one per operator on the CPU, and one per delegated part. */
  public static int length(Interpreter interpreter) {
    return interpreter.getExecutionPlanLength();
  }
}
