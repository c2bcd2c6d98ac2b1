package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Reads the members of a JSON object with their types, and collects problems in a list.
 *
 * <p>If a member is absent or has another type, a getter adds a problem and returns an empty value, so one pass finds
 * all problems. {@link #close} adds the members that were not read.
 */
final class Fields {
  // Keys can be as long as the file.
  private static final int MOST_SHOWN = 100;
  // Doubles above it skip integers.
  private static final long MOST_WHOLE = 1L << 53;

  private final String path;
  private final Map<?, ?> members;
  private final List<String> problems;
  private final Set<String> taken = new HashSet<>();

  private Fields(String path, Map<?, ?> members, List<String> problems) {
    this.path = path;
    this.members = members;
    this.problems = problems;
  }

  static Fields of(Object value, String path, List<String> problems) {
    if (!(value instanceof Map)) {
      problems.add(path + " must be an object");
      return new Fields(path, Collections.emptyMap(), new ArrayList<String>());
    }
    return new Fields(path, (Map<?, ?>) value, problems);
  }

  /** The object's keys. */
  List<String> names() {
    List<String> names = new ArrayList<>();
    for (Object name : members.keySet()) {
      names.add((String) name);
    }
    return names;
  }

  /** The object itself, for any content. */
  Map<?, ?> members() {
    return members;
  }

  String path(String name) {
    return path + "." + (name.length() > MOST_SHOWN ? name.substring(0, MOST_SHOWN) + "…" : name);
  }

  Fields object(String name) {
    return of(take(name), path(name), problems);
  }

  /** The member, an object or null. */
  Fields objectOrNull(String name) {
    return take(name) == null && members.containsKey(name) ? null : object(name);
  }

  /** The member, or null if the object lacks it. */
  Fields objectIfPresent(String name) {
    return members.containsKey(name) ? object(name) : null;
  }

  List<?> list(String name) {
    Object value = take(name);
    if (value instanceof List) {
      return (List<?>) value;
    }
    problems.add(path(name) + " must be a list");
    return Collections.emptyList();
  }

  List<String> strings(String name) {
    List<String> strings = new ArrayList<>();
    for (Object value : list(name)) {
      if (value instanceof String) {
        strings.add((String) value);
      } else {
        problems.add(path(name) + " must hold strings");
      }
    }
    return strings;
  }

  /** The objects of a list with at least one element. */
  List<Fields> objects(String name) {
    List<Fields> objects = new ArrayList<>();
    for (Object value : list(name)) {
      objects.add(of(value, path(name) + "[" + objects.size() + "]", problems));
    }
    if (objects.isEmpty()) {
      problems.add(path(name) + " must not be empty");
    }
    return objects;
  }

  String string(String name) {
    Object value = take(name);
    if (value instanceof String) {
      return (String) value;
    }
    problems.add(path(name) + " must be a string");
    return "";
  }

  String stringOrNull(String name) {
    return take(name) == null && members.containsKey(name) ? null : string(name);
  }

  boolean bool(String name) {
    Object value = take(name);
    if (!(value instanceof Boolean)) {
      problems.add(path(name) + " must be true or false");
    }
    return Boolean.TRUE.equals(value);
  }

  /** A whole number from 1 to 2^53, or null. */
  Long countOrNull(String name) {
    return take(name) == null && members.containsKey(name) ? null : Long.valueOf(count(name));
  }

  /** A whole number from 1 to 2^53. */
  long count(String name) {
    return whole(name, 1);
  }

  /** A whole number from {@code least} to 2^53. */
  long whole(String name, long least) {
    Object value = take(name);
    double number = value instanceof Number ? ((Number) value).doubleValue() : -1;
    if (number >= least && number <= MOST_WHOLE && number == Math.rint(number)) {
      return (long) number;
    }
    problems.add(path(name) + " must be a whole number of at least " + least);
    return least;
  }

  /** An optional number; null if it is absent. */
  Double numberIfPresent(String name) {
    if (!members.containsKey(name)) {
      return null;
    }
    number(name);
    return doubleOf(members.get(name));
  }

  private static Double doubleOf(Object value) {
    return value instanceof Number ? (Double) ((Number) value).doubleValue() : null;
  }

  /** Checks a number. */
  void number(String name) {
    if (!(take(name) instanceof Number)) {
      problems.add(path(name) + " must be a number");
    }
  }

  /** Checks a number or null. */
  void numberOrNull(String name) {
    if (take(name) != null || !members.containsKey(name)) {
      number(name);
    }
  }

  /** A number, or null. */
  Double doubleOrNull(String name) {
    numberOrNull(name);
    return doubleOf(members.get(name));
  }

  /** The numbers of a list, or null. */
  double[] numbersOrNull(String name) {
    if (take(name) == null && members.containsKey(name)) {
      return null;
    }
    List<?> values = list(name);
    double[] numbers = new double[values.size()];
    for (int i = 0; i < numbers.length; i++) {
      if (!(values.get(i) instanceof Number)) {
        problems.add(path(name) + " must hold numbers");
        return null;
      }
      numbers[i] = ((Number) values.get(i)).doubleValue();
    }
    return numbers;
  }

  /** Checks a list of so many numbers, or null. */
  void numbersOrNull(String name, int count) {
    if (take(name) == null && members.containsKey(name)) {
      return;
    }
    List<?> values = list(name);
    boolean numbers = values.size() == count;
    for (Object value : values) {
      numbers &= value instanceof Number;
    }
    if (!numbers) {
      problems.add(path(name) + " must hold " + count + " numbers");
    }
  }

  /** A list of whole numbers from 0 to 2^53. */
  long[] wholeNumbers(String name) {
    return wholeNumbers(list(name), name);
  }

  private long[] wholeNumbers(List<?> values, String name) {
    long[] numbers = new long[values.size()];
    for (int i = 0; i < numbers.length; i++) {
      double number = values.get(i) instanceof Number ? ((Number) values.get(i)).doubleValue() : -1;
      if (!(number >= 0 && number <= MOST_WHOLE && number == Math.rint(number))) {
        problems.add(path(name) + " must hold whole numbers of at least 0");
        return new long[0];
      }
      numbers[i] = (long) number;
    }
    return numbers;
  }

  /** The strings of an object with at least one member and any keys. */
  List<String> texts(String name) {
    Fields object = object(name);
    List<String> texts = new ArrayList<>();
    for (String key : object.names()) {
      texts.add(object.string(key));
    }
    if (texts.isEmpty()) {
      problems.add(path(name) + " must not be empty");
    }
    return texts;
  }

  /** Adds a problem for each member that was not read. */
  void close() {
    for (String name : names()) {
      if (!taken.contains(name)) {
        problems.add(path(name) + " is unknown");
      }
    }
  }

  private Object take(String name) {
    taken.add(name);
    return members.get(name);
  }
}
