package org.pocketbert;

import java.util.List;

/** Bad input, as opposed to a bug: the message is one line with the rule, what was received and what to do. */
public final class UserError extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** An error whose message is shown to people as it is. */
  public UserError(String message) {
    super(message.replaceAll("\\s+", " "));
  }

  /**
   * Throws one error that lists all problems, or does nothing if there are none.
   *
   * @param problems one sentence each
   * @param subject what is wrong, for example a file; it opens the message
   */
  public static void throwIfAny(List<String> problems, String subject) {
    if (!problems.isEmpty()) {
      throw new UserError(subject + ": " + String.join("; ", problems));
    }
  }
}
