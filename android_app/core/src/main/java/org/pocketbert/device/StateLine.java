package org.pocketbert.device;

import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.pocketbert.json.Json;

/**
 * The state of a run, as one line in the phone's log for programs.
 *
 * <p>Each line is a JSON object in ASCII with {@code run}, {@code state}, {@code done}, {@code of}, {@code reason} and
 * {@code result}.
 */
public final class StateLine {
  /** The log tag of these lines; no other line has it. */
  public static final String TAG = "PocketBERT";

  // Android's log cuts entries at about 4000 bytes; an escaped character has 6.
  private static final int MOST_REASON_CHARACTERS = 600;

  /** States in order; a run ends with one of the last three. */
  public enum State {
    STARTED,
    COOLING,
    CHECKING,
    WARMING_UP,
    MEASURING,
    DONE,
    FAILED,
    REFUSED
  }

  private StateLine() {}

  /**
   * Returns a progress line; see {@link org.pocketbert.benchmark.Platform#progress}. While cooling, both are seconds.
   */
  public static String progress(String run, State state, int done, int of) {
    return line(run, state, done, of, null, null);
  }

  /**
   * Returns the last line of a run.
   *
   * @param run its name; null if the name was refused
   * @param reason why there is no number; null on success
   * @param result the result file's name; null if there is none
   */
  public static String end(String run, State state, String reason, String result) {
    boolean isLong = reason != null && reason.length() > MOST_REASON_CHARACTERS;
    return line(run, state, 0, 0, isLong ? reason.substring(0, MOST_REASON_CHARACTERS) + "…" : reason, result);
  }

  private static String line(String run, State state, int done, int of, String reason, String result) {
    Map<String, Object> members = new LinkedHashMap<>();
    members.put("run", run);
    members.put("state", state.name().toLowerCase(Locale.ROOT));
    members.put("done", done);
    members.put("of", of);
    members.put("reason", reason);
    members.put("result", result);
    return Json.write(members);
  }
}
