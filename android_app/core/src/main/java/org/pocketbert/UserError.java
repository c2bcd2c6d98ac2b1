package org.pocketbert;

import java.util.ArrayList;
import java.util.List;

/** Bad input, as opposed to a bug: the message is one line with the rule, what was received and what to do. */
public final class UserError extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final int MOST_LISTED = 20;
  private static final int MOST_CHARACTERS = 300;

  /** An error whose message is shown to people as it is. */
  public UserError(String message) {
    super(message.replaceAll("\\s+", " "));
  }

  /**
   * Throws one error that lists the problems, or does nothing if there are none.
   *
   * <p>The message stays short, whatever a file holds: it counts what comes after 20 problems, and cuts long ones.
   *
   * @param problems one sentence each
   * @param subject what is wrong, for example a file; it opens the message
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
