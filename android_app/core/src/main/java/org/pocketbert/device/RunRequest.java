package org.pocketbert.device;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.pocketbert.UserError;
import org.pocketbert.engine.Delegate;

/** A request to measure, from outside the app. Every value has a list of choices or bounds. */
public final class RunRequest {
  /** Names of runs and bundles. They become file names: no folders, no hidden files. */
  static final Pattern NAME = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}");

  private static final int MOST_NAME = 64;
  private static final int MOST_TOKENS = 1 << 16;
  private static final int MOST_THREADS = 16;
  private static final int MOST_REPEATS = 100;

  /** The processors for the network. */
  public enum Affinity {
    /** All processors allowed by the system. */
    ANY,
    /** All except the slowest kind. */
    BIG,
    /** The slowest kind. */
    LITTLE;

    /** The spelling in requests and results. */
    public String word() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  /** Name of the result file. */
  public final String run;

  /** The bundle's folder. */
  public final String bundle;

  /** Tokens in a call. */
  public final int length;

  /** The runtime's threads. */
  public final int threads;

  /** CPU or GPU. */
  public final Delegate delegate;

  /** Processors. */
  public final Affinity affinity;

  /** Whether the runtime keeps packed weights in a file. */
  public final boolean weightCache;

  /** Number of the repetition, from 1. */
  public final int repeat;

  /** Creates a request from valid values. */
  public RunRequest(
      String run,
      String bundle,
      int length,
      int threads,
      Delegate delegate,
      Affinity affinity,
      boolean weightCache,
      int repeat) {
    this.run = run;
    this.bundle = bundle;
    this.length = length;
    this.threads = threads;
    this.delegate = delegate;
    this.affinity = affinity;
    this.weightCache = weightCache;
    this.repeat = repeat;
  }

  /**
   * Reads a request.
   *
   * @param given {@code run}, {@code bundle}: names; {@code length}, {@code threads}: Integers; optional: {@code
   *     delegate}: {@code cpu} or {@code gpu}; {@code affinity}: {@code any}, {@code big} or {@code little}; {@code
   *     weight_cache}: {@code off} or {@code on}; {@code repeat}: an Integer, 1
   * @throws UserError lists all problems, including unknown keys
   */
  public static RunRequest parse(Map<String, ?> given) {
    Map<String, Object> left = new LinkedHashMap<>(given);
    List<String> problems = new ArrayList<>();
    String run = name(left, "run", problems);
    String bundle = name(left, "bundle", problems);
    int length = number(left, "length", MOST_TOKENS, null, problems);
    int threads = number(left, "threads", MOST_THREADS, null, problems);
    String delegate = word(left, "delegate", Arrays.asList("cpu", "gpu"), problems);
    String affinity = word(left, "affinity", Arrays.asList("any", "big", "little"), problems);
    String weightCache = word(left, "weight_cache", Arrays.asList("off", "on"), problems);
    int repeat = number(left, "repeat", MOST_REPEATS, 1, problems);
    for (String key : new TreeSet<>(left.keySet())) {
      problems.add(
          "a key must be one of run, bundle, length, threads, delegate, affinity, weight_cache, repeat; received "
              + shown(key));
    }
    UserError.throwIfAny(problems, "the request");
    return new RunRequest(
        run,
        bundle,
        length,
        threads,
        Delegate.valueOf(delegate.toUpperCase(Locale.ROOT)),
        Affinity.valueOf(affinity.toUpperCase(Locale.ROOT)),
        weightCache.equals("on"),
        repeat);
  }

  /**
   * Returns the name of the run, so that the caller can match a refusal even if the rest of the request is wrong.
   *
   * @param given see {@link #parse}
   * @return null if there is no name or it is too long
   */
  public static String name(Map<String, ?> given) {
    Object run = given.get("run");
    return run instanceof String && ((String) run).length() <= MOST_NAME ? (String) run : null;
  }

  private static String name(Map<String, Object> left, String key, List<String> problems) {
    Object value = left.remove(key);
    if (value instanceof String && NAME.matcher((String) value).matches()) {
      return (String) value;
    }
    problems.add(
        key + " must be 1 to 64 letters, digits, dots, dashes or underscores and begin with a letter or digit; "
            + received(value));
    return "";
  }

  private static int number(Map<String, Object> left, String key, int most, Integer otherwise, List<String> problems) {
    if (otherwise != null && !left.containsKey(key)) {
      return otherwise;
    }
    Object value = left.remove(key);
    if (value instanceof Integer && (Integer) value >= 1 && (Integer) value <= most) {
      return (Integer) value;
    }
    problems.add(key + " must be a whole number from 1 to " + most + "; " + received(value));
    return 1;
  }

  /** Returns one of the words; the first one if the key is absent. */
  private static String word(Map<String, Object> left, String key, List<String> words, List<String> problems) {
    if (!left.containsKey(key)) {
      return words.get(0);
    }
    Object value = left.remove(key);
    if (value instanceof String && words.contains(value)) {
      return (String) value;
    }
    problems.add(key + " must be one of " + String.join(", ", words) + "; " + received(value));
    return words.get(0);
  }

  private static String received(Object value) {
    return value == null ? "received nothing" : "received " + shown(value.toString());
  }

  private static String shown(String value) {
    return value.length() > 80 ? value.substring(0, 80) + "…" : value;
  }
}
