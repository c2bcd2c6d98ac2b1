package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.pocketbert.UserError;

/** The content of bundle.json, schema version 1, checked as strictly as the Python side's JSON schema does. */
final class Description {
  private static final double SCHEMA_VERSION = 1;
  private static final int MOST_FILES = 16;
  private static final int MOST_TOKENS = 1 << 16;
  private static final List<String> TASKS =
      Arrays.asList("classification", "multi_label", "regression", "masked_lm", "next_sentence", "span");
  private static final List<String> INPUTS = Arrays.asList(Bundle.WORD_IDS, Bundle.MASK, Bundle.TYPE_IDS);
  private static final Pattern DIGEST = Pattern.compile("[0-9a-f]{64}");

  final SortedMap<Integer, String> signatures = new TreeMap<>();
  final Map<String, File> files = new LinkedHashMap<>();
  final List<Golden> goldens = new ArrayList<>();
  final List<String> labels = new ArrayList<>();
  final String recipe;
  final boolean lowercase;
  final long vocabSize;

  /** A file's expected content. */
  static final class File {
    final String sha256;
    private final long sizeBytes;

    private File(String sha256, long sizeBytes) {
      this.sha256 = sha256;
      this.sizeBytes = sizeBytes;
    }

    void checkSize(long found) throws CheckedFile.Unusable {
      if (found != sizeBytes) {
        throw new CheckedFile.Unusable("must have " + sizeBytes + " bytes; it has " + found);
      }
    }

    void check(ByteBuffer content) throws CheckedFile.Unusable {
      checkSize(content.remaining());
      String found = CheckedFile.sha256(content);
      if (!found.equals(sha256)) {
        throw new CheckedFile.Unusable("must have the sha256 " + sha256 + "; it has " + found);
      }
    }
  }

  /**
   * Reads a parsed bundle.json.
   *
   * @param subject opens the error's message
   * @throws UserError lists everything that the schema does not allow
   */
  static Description parse(Object json, String subject) {
    List<String> problems = new ArrayList<>();
    Fields fields = Fields.of(json, "$", problems);
    if (fields.count("schema_version") != SCHEMA_VERSION) {
      throw new UserError(
          subject + ": schema_version must be 1, which this version reads; export the bundle again or take a newer app");
    }
    Description description = new Description(fields, problems);
    UserError.throwIfAny(problems, subject);
    return description;
  }

  private Description(Fields fields, List<String> problems) {
    Fields task = fields.objectOrNull("task");
    if (task != null) {
      if (!TASKS.contains(task.string("kind"))) {
        problems.add("$.task.kind must be one of " + String.join(", ", TASKS));
      }
      task.string("name");
      labels.addAll(task.strings("labels"));
      task.numberIfPresent("null_threshold");
      task.close();
    }
    for (Fields signature : fields.objects("signatures")) {
      long length = signature.count("length");
      if (length > MOST_TOKENS || signatures.put((int) length, signature.string("name")) != null) {
        problems.add(signature.path("length") + " must be at most " + MOST_TOKENS + " and stand once");
      }
      signature.close();
    }
    List<String> inputs = tensors(fields, "inputs", "int32", problems);
    if (inputs.size() != INPUTS.size() || !inputs.containsAll(INPUTS)) {
      problems.add("$.inputs must be " + String.join(", ", INPUTS));
    }
    List<String> outputs = tensors(fields, "outputs", "float32", problems);
    Fields tokenizer = fields.object("tokenizer");
    lowercase = tokenizer.bool("lowercase");
    vocabSize = tokenizer.count("vocab_size");
    tokenizer.close();
    recipe = fields.string("recipe");
    fields.count("num_parameters");
    fields.texts("lowerings");
    fields.texts("tools");
    for (String digest : fields.texts("source")) {
      if (!DIGEST.matcher(digest).matches()) {
        problems.add("$.source must hold 64 hexadecimal digits");
      }
    }
    if (fields.strings("runtimes").isEmpty()) {
      problems.add("$.runtimes must not be empty");
    }
    readFiles(fields.object("files"), problems);
    for (Fields golden : fields.objects("goldens")) {
      readGolden(golden, outputs, problems);
    }
    fields.close();
  }

  private static List<String> tensors(Fields fields, String name, String type, List<String> problems) {
    List<String> names = new ArrayList<>();
    for (Fields tensor : fields.objects(name)) {
      names.add(tensor.string("name"));
      if (!tensor.string("dtype").equals(type)) {
        problems.add(tensor.path("dtype") + " must be " + type);
      }
      tensor.close();
    }
    return names;
  }

  private void readFiles(Fields listed, List<String> problems) {
    int count = listed.names().size();
    if (count < 1 || count > MOST_FILES) {
      problems.add("$.files must be 1 to " + MOST_FILES + "; received " + count);
      return;
    }
    for (String name : listed.names()) {
      Fields file = listed.object(name);
      String digest = file.string("sha256");
      if (!CheckedFile.PLAIN_NAME.matcher(name).matches()) {
        problems.add("$.files must have plain file names, without folders; received " + shown(name));
      } else if (name.equals(Bundle.DESCRIPTION)) {
        problems.add("$.files must not list " + name + ", which cannot hold its own digest");
      } else if (!DIGEST.matcher(digest).matches()) {
        problems.add(file.path("sha256") + " must be 64 hexadecimal digits");
      }
      files.put(name, new File(digest, file.count("size_bytes")));
      file.close();
    }
  }

  private void readGolden(Fields golden, List<String> outputs, List<String> problems) {
    int before = problems.size();
    String text = golden.string("text");
    String pair = golden.stringOrNull("pair");
    int length = (int) Math.min(golden.count("length"), MOST_TOKENS);
    Map<String, int[]> inputs = new LinkedHashMap<>();
    Fields given = golden.object("inputs");
    for (String name : INPUTS) {
      long below = name.equals(Bundle.WORD_IDS) ? vocabSize : 2;
      inputs.put(name, integers(given, name, length, below, problems));
    }
    given.close();
    answers(golden.object("outputs"), outputs);
    Map<String, double[]> exported = answers(golden.object("exported_outputs"), outputs);
    golden.close();
    if (problems.size() == before) {
      goldens.add(new Golden(text, pair, length, inputs, exported));
    }
  }

  private static Map<String, double[]> answers(Fields given, List<String> outputs) {
    Map<String, double[]> answers = new LinkedHashMap<>();
    for (String name : outputs) {
      answers.put(name, given.numbers(name));
    }
    given.close();
    return answers;
  }

  private static int[] integers(Fields fields, String name, int length, long below, List<String> problems) {
    double[] numbers = fields.numbers(name);
    int[] values = new int[numbers.length];
    boolean valid = numbers.length == length;
    for (int i = 0; i < numbers.length; i++) {
      values[i] = (int) numbers[i];
      valid &= values[i] == numbers[i] && values[i] >= 0 && values[i] < below;
    }
    if (!valid) {
      problems.add(fields.path(name) + " must be " + length + " whole numbers below " + below);
    }
    return values;
  }

  private static String shown(String name) {
    return "'" + (name.length() > 40 ? name.substring(0, 40) + "…" : name) + "'";
  }
}
