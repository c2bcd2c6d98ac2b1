package org.pocketbert.bundle;

import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.pocketbert.ResourceTable;

/** A row of {@code pocketbert.tasks.registry.TASKS}: what the outputs of a task mean. */
public final class TaskKind {
  /** The constant that a task ignores: softmax ignores one per text or token, a ranking one for all texts. */
  public enum Centre {
    NONE,
    EACH_ROW,
    ALL
  }

  private static final Map<String, TaskKind> KINDS = new LinkedHashMap<>();
  private static final Set<String> OUTPUTS = new HashSet<>();

  static {
    OUTPUTS.add("sequence_output");
    for (String[] words : ResourceTable.lines(TaskKind.class, "tasks.txt")) {
      KINDS.put(words[0], new TaskKind(words));
      for (int i = 5; i < words.length; i++) {
        OUTPUTS.add(words[i]);
      }
    }
  }

  /** The names of the kinds, in the table's order. */
  static final Set<String> NAMES = Collections.unmodifiableSet(KINDS.keySet());

  /** Whether the second axis of an output counts tokens; of several heads, each output has its head in front. */
  static boolean isTokenOutput(String name) {
    return OUTPUTS.contains(name) || OUTPUTS.contains(name.substring(name.indexOf('_') + 1));
  }

  /** Least number of labels; 0 for a task without labels. */
  final int leastLabels;

  /** Outputs are compared with and without this constant. */
  public final Centre centre;

  /** Least scale of centred outputs, as a fraction of the scale of the outputs. */
  public final double leastCentredScale;

  /** Whether the direction of the output is what counts. */
  public final boolean hasVectors;

  /** Whether each token has a label, so that long texts are read in windows. */
  final boolean labelsTokens;

  private TaskKind(String[] words) {
    leastLabels = Integer.parseInt(words[1]);
    centre = Centre.valueOf(words[2]);
    leastCentredScale = Double.parseDouble(words[3]);
    hasVectors = words[4].equals("vectors");
    labelsTokens = leastLabels > 0 && words.length > 5;
  }

  /** Returns the kind of an opened bundle's task; null for a bare encoder. */
  public static TaskKind of(String name) {
    return KINDS.get(name);
  }
}
