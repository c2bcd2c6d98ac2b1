package org.pocketbert.bundle;

import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;

/** A network for one task, with checked outputs. */
final class TaskNetwork {
  private final Network network;
  private final String output;

  /**
   * Creates a checked network.
   *
   * @param kind the task that the bundle must have
   * @param needs what needs this task, for the message
   * @throws UserError if the bundle has another task
   */
  TaskNetwork(Bundle bundle, String kind, String needs, Network network, String output) {
    if (!kind.equals(bundle.taskKind())) {
      throw new UserError(needs + " need a bundle for " + kind + "; " + bundle.name() + " is for " + bundle.taskKind());
    }
    this.network = network;
    this.output = output;
  }

  /**
   * Returns the output's values.
   *
   * @throws UserError if the output is missing or a value is not finite
   */
  float[] run(ModelInputs inputs) {
    return checked(network.run(inputs), output);
  }

  /**
   * Returns the text.
   *
   * @throws UserError if it is null
   */
  static String text(String text) {
    if (text == null) {
      throw new UserError("a text must be a string; received null; pass an empty string for no text");
    }
    return text;
  }

  /**
   * Returns the values of one output.
   *
   * @throws UserError if the output is missing or a value is not finite
   */
  static float[] checked(Map<String, float[]> outputs, String output) {
    float[] values = outputs.get(output);
    if (values == null) {
      throw new UserError("a network must return " + output + "; it is missing");
    }
    for (float value : values) {
      if (Float.isNaN(value) || Float.isInfinite(value)) {
        throw new UserError("a network must return finite numbers for " + output + "; received " + value);
      }
    }
    return values;
  }
}
