package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;

/** A head in bundle.json: what its outputs mean. */
final class TaskHead {
  static final String SEVERAL = "several";
  private static final List<String> OF_PAIRS =
      Arrays.asList(TextClassifier.CLASSES, TextClassifier.LABELS, Scorer.KIND);
  private static final List<String> ACTIVATIONS = Arrays.asList("identity", "sigmoid");
  // Control characters, line breaks, surrogates; white space at the start or end.
  private static final Pattern BROKEN = Pattern.compile("[\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}]|^\\p{Z}|\\p{Z}$");
  private static final Pattern SPACE = Pattern.compile("\\p{Z}+");
  private static final Pattern NAME = Pattern.compile("[A-Za-z][A-Za-z0-9]*");

  /** The kind of the task. */
  final String kind;

  /** The name of the head, or of the task. */
  final String name;

  /** The labels in the order of the logits; empty for a kind without labels. */
  final List<String> labels = new ArrayList<>();

  /** Thresholds of answers; null for the defaults. */
  final DecisionOptions decisions;

  /** How much better the empty answer must be than the best one to be the answer; null to answer every question. */
  final Double nullThreshold;

  /** Null for other tasks. */
  final EmbeddingOptions embedding;

  /** The heads of several, in the order of the outputs; empty for one head. */
  final List<TaskHead> heads = new ArrayList<>();

  /** Reads and checks a task, or one of its heads. */
  TaskHead(Fields task, boolean isPart, List<String> problems) {
    kind = task.string("kind");
    if (!TaskKind.NAMES.contains(kind)) {
      problems.add(task.path("kind") + " must be one of " + String.join(", ", TaskKind.NAMES));
    }
    name = task.string("name");
    labels.addAll(task.strings("labels"));
    checkLabels(task.path("labels"), problems);
    nullThreshold = task.numberIfPresent("null_threshold");
    // The graph applies it.
    if (task.names().contains("activation") && !ACTIVATIONS.contains(task.string("activation"))) {
      problems.add(task.path("activation") + " must be one of " + String.join(", ", ACTIVATIONS));
    }
    Fields thresholds = task.objectIfPresent("decisions");
    decisions =
        thresholds == null
            ? null
            : new DecisionOptions(thresholds, task.path("decisions"), kind, labels.size(), problems);
    embedding = SentenceEmbedder.KIND.equals(kind) ? new EmbeddingOptions(task.object("embedding"), problems) : null;
    if (!isPart && SEVERAL.equals(kind)) {
      readHeads(task, problems);
    } else if (isPart && !NAME.matcher(name).matches()) {
      problems.add(task.path("name") + " must have letters and digits alone; received " + Description.shown(name));
    }
    task.close();
  }

  /**
   * Reads the head on the vectors of two texts.
   *
   * @param pairs the member of bundle.json, or null
   * @param texts the task of the encoder
   * @return null without the member
   */
  static TaskHead ofPairs(Fields pairs, TaskHead texts, List<String> problems) {
    if (pairs == null) {
      return null;
    }
    TaskHead head = new TaskHead(pairs.object("task"), false, problems);
    pairs.close();
    if (!OF_PAIRS.contains(head.kind)) {
      problems.add(
          "$.pairs.task.kind must be one of " + String.join(", ", OF_PAIRS) + "; received "
              + Description.shown(head.kind));
    }
    if (texts == null || !SentenceEmbedder.KIND.equals(texts.kind)) {
      problems.add("$.task.kind must be " + SentenceEmbedder.KIND + " beside $.pairs, whose head reads vectors");
    }
    return head;
  }

  private void readHeads(Fields task, List<String> problems) {
    Set<String> names = new HashSet<>();
    for (Fields part : task.objects("tasks")) {
      TaskHead head = new TaskHead(part, true, problems);
      if (!names.add(head.name)) {
        problems.add(part.path("name") + " must be unique");
      }
      heads.add(head);
    }
  }

  /** The head that an output belongs to: of several, its name is in front; null for the output of none. */
  TaskHead of(String output) {
    if (!SEVERAL.equals(kind)) {
      return this;
    }
    for (TaskHead head : heads) {
      if (output.startsWith(head.name + "_")) {
        return head;
      }
    }
    return null;
  }

  /** Unmodifiable labels. */
  List<String> labels() {
    return Collections.unmodifiableList(labels);
  }

  /** Labels are lines in a file; people and programs must be able to distinguish them. */
  private void checkLabels(String path, List<String> problems) {
    Set<String> seen = new HashSet<>();
    for (String label : labels) {
      if (label.trim().isEmpty() || BROKEN.matcher(label).find()) {
        problems.add(path + " must be one line of text each; received " + Description.shown(label));
      } else if (!seen.add(SPACE.matcher(label).replaceAll(" ").toUpperCase(Locale.ROOT).toLowerCase(Locale.ROOT))) {
        problems.add(path + " must differ in more than case or white space; received " + Description.shown(label));
      }
    }
    TaskKind row = TaskKind.of(kind);
    int fewest = row == null ? 0 : row.leastLabels;
    if (labels.size() < fewest || fewest == 0 && !labels.isEmpty()) {
      String rule = fewest == 0 ? "none" : fewest + " or more";
      problems.add(path + " must be " + rule + " for " + Description.shown(kind) + "; received " + labels.size());
    }
  }
}
