package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.pocketbert.UserError;

/** The golden lines and examples of an opened bundle, read at first use. */
final class Goldens {
  private final Bundle bundle;
  private final Description description;
  private final ByteBuffer answers;
  private final ByteBuffer outputs;
  private List<GoldenLine> lines;
  private List<Golden> examples;

  /**
   * Creates the goldens of a bundle.
   *
   * @param answers the content of answers.jsonl
   * @param outputs the content of goldens.safetensors
   */
  Goldens(Bundle bundle, Description description, ByteBuffer answers, ByteBuffer outputs) {
    this.bundle = bundle;
    this.description = description;
    this.answers = answers;
    this.outputs = outputs;
  }

  /** Returns all lines; throws a {@link UserError} if one is damaged, or has other ids or offsets than the tokenizer. */
  synchronized List<GoldenLine> lines() {
    if (lines == null) {
      List<String> problems = new ArrayList<>();
      List<GoldenLine> read = GoldenLine.read(answers, description, problems);
      bundle.throwIfAny(problems);
      GoldenRows rows = new GoldenRows(bundle);
      for (GoldenLine line : read) {
        String problem = rows.problem(line);
        if (problem != null) {
          problems.add(line.subject() + " " + problem);
        }
      }
      bundle.throwIfAny(problems);
      lines = read;
    }
    return lines;
  }

  /** Returns the first lines, with raw outputs; throws a {@link UserError} if they contradict the lines. */
  synchronized List<Golden> examples() {
    if (examples == null) {
      List<String> problems = new ArrayList<>();
      List<Golden> read = GoldenAnswers.read(outputs, description, lines(), bundle.tokenizer().padId(), problems);
      bundle.throwIfAny(problems);
      examples = Collections.unmodifiableList(read);
    }
    return examples;
  }

  /** Returns the examples that fit a length, padded to it; throws a {@link UserError} if none fits. */
  List<Golden> examples(int length) {
    List<Golden> fitting = new ArrayList<>();
    for (Golden golden : examples()) {
      boolean answersTokens = false;
      for (String output : golden.exportedOutputs.keySet()) {
        answersTokens |= TaskKind.isTokenOutput(output);
      }
      if (answersTokens ? golden.length == length : golden.tokenCount() <= length) {
        fitting.add(golden.at(length, bundle.tokenizer().padId()));
      }
    }
    if (fitting.isEmpty()) {
      throw new UserError(
          "a bundle needs a golden example of at most " + length + " tokens; " + bundle.name() + " has none");
    }
    return fitting;
  }
}
