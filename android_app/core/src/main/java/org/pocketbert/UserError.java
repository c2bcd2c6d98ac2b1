package org.pocketbert;

import java.util.ArrayList;
import java.util.List;

/** Bad input, as opposed to a bug. The message is one line: rule, received value, remedy. */
public final class UserError extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final int MOST_LISTED = 20;
  private static final int MOST_CHARACTERS = 300;

  /** Creates an error. People see its message unchanged. */
  public UserError(String message) {
    super(message.replaceAll("\\s+", " "));
  }

  /**
   * Throws one error that lists the problems, or does nothing if there are none.
   *
   * <p>The message stays short for any file: it lists 20 problems, counts the rest, and truncates long ones.
   *
   * @param problems one sentence each
   * @param subject start of the message, for example the file with the problems
   */
  public static void throwIfAny(List<String> problems, String subject) {
    if (problems.isEmpty()) {
      return;
    }
    List<String> listed = new ArrayList<>();
    for (String problem : problems.subList(0, Math.min(problems.size(), MOST_LISTED))) {
      listed.add(problem.length() > MOST_CHARACTERS ? problem.substring(0, MOST_CHARACTERS) + "…" : problem);
    }
    if (listed.size() < problems.size()) {
      listed.add("and " + (problems.size() - listed.size()) + " more problems");
    }
    throw new UserError(subject + ": " + String.join("; ", listed));
  }
}
