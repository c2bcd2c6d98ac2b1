package org.tensorflow.lite;

/** In the archive's own package, since only that may ask. */
public final class ExecutionPlan {
  private ExecutionPlan() {}

  /** Steps of the first graph's plan: its operators, less those that a delegate took, and one for each part it took. */
  public static int length(Interpreter interpreter) {
    return interpreter.getExecutionPlanLength();
  }
}
