package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/** Reads raw outputs of the first golden lines from {@code goldens.safetensors}, with names {@code INDEX/KIND/OUTPUT}. */
final class GoldenAnswers {
  private static final Pattern NAME = Pattern.compile("[0-9]{1,4}/.*");

  private final Description description;
  private final Map<String, Safetensors.Tensor> tensors;
  private final List<String> problems;
  // Shape of each output in the first example, with 0 for the axis of tokens.
  private final Map<String, int[]> shapes = new HashMap<>();

  private GoldenAnswers(Description description, Map<String, Safetensors.Tensor> tensors, List<String> problems) {
    this.description = description;
    this.tensors = tensors;
    this.problems = problems;
  }

  /**
   * Returns the first golden lines with their outputs.
   *
   * @param content the file's bytes
   * @param lines sound lines of answers.jsonl
   * @param padId the id of padding
   * @param problems receives a sentence for each violated rule; then the result is unusable
   */
  static List<Golden> read(
      ByteBuffer content, Description description, List<GoldenLine> lines, int padId, List<String> problems) {
    try {
      Map<String, Safetensors.Tensor> tensors = new LinkedHashMap<>(Safetensors.read(content));
      return new GoldenAnswers(description, tensors, problems).goldens(lines, padId);
    } catch (CheckedFile.Unusable error) {
      problems.add(Bundle.GOLDENS + " " + error.getMessage());
      return new ArrayList<>();
    }
  }

  private List<Golden> goldens(List<GoldenLine> lines, int padId) {
    List<Golden> goldens = new ArrayList<>();
    int count = 1;
    for (String name : tensors.keySet()) {
      if (NAME.matcher(name).matches()) {
        count = Math.max(count, Integer.parseInt(name.substring(0, name.indexOf('/'))) + 1);
      }
    }
    for (int i = 0; i < Math.min(count, lines.size()); i++) {
      GoldenLine line = lines.get(i);
      // The shortest length that fits.
      int length = description.signatures.tailMap(line.windows.get(0).ids.length).firstKey();
      Map<String, FloatBuffer> outputs = answers(i + "/outputs/", length);
      goldens.add(Golden.of(line, length, padId, outputs, answers(i + "/exported_outputs/", length)));
    }
    for (String name : tensors.keySet()) {
      problems.add(Bundle.GOLDENS + " must hold no tensor " + name);
    }
    return goldens;
  }

  private Map<String, FloatBuffer> answers(String prefix, int length) {
    Map<String, FloatBuffer> answers = new LinkedHashMap<>();
    for (String output : description.outputs) {
      Safetensors.Tensor tensor = tensors.remove(prefix + output);
      String where = Bundle.GOLDENS + ": " + prefix + output;
      if (tensor == null) {
        problems.add(where + " must be there; it is missing");
      } else if (!hasShape(tensor, output, length)) {
        problems.add(where + " must have " + expected(output, length) + "; it has " + Arrays.toString(tensor.shape));
      } else if (!isAsTheOthers(tensor, output)) {
        problems.add(where + " must have the same shape as in other examples; it has " + Arrays.toString(tensor.shape));
      } else if (!isFinite(tensor.values)) {
        problems.add(where + " must hold finite numbers");
      } else {
        answers.put(output, tensor.values);
      }
    }
    return answers;
  }

  private boolean hasShape(Safetensors.Tensor tensor, String output, int length) {
    int[] shape = tensor.shape;
    if (shape.length < 1 || shape[0] != 1 || tensor.values.limit() == 0) {
      return false;
    }
    int labels = description.labelsOf(output);
    if (labels > 0) {
      boolean perToken = TaskKind.isTokenOutput(output);
      boolean fits = perToken ? shape.length == 3 && shape[1] == length : shape.length == 2;
      return fits && shape[shape.length - 1] == labels;
    }
    return !TaskKind.isTokenOutput(output) || shape.length > 1 && shape[1] == length;
  }

  private boolean isAsTheOthers(Safetensors.Tensor tensor, String output) {
    int[] shape = tensor.shape.clone();
    if (TaskKind.isTokenOutput(output)) {
      shape[1] = 0;
    }
    int[] first = shapes.putIfAbsent(output, shape);
    return first == null || Arrays.equals(first, shape);
  }

  private String expected(String output, int length) {
    int labels = description.labelsOf(output);
    if (labels > 0) {
      String tokens = TaskKind.isTokenOutput(output) ? length + ", " : "";
      return "the shape [1, " + tokens + labels + "], one number per label";
    }
    return TaskKind.isTokenOutput(output) ? "the shape [1, " + length + ", …]" : "the shape [1, …]";
  }

  private static boolean isFinite(FloatBuffer values) {
    for (int i = 0; i < values.limit(); i++) {
      if (Float.isNaN(values.get(i)) || Float.isInfinite(values.get(i))) {
        return false;
      }
    }
    return true;
  }
}
