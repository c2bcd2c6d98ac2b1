package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.pocketbert.Sha256;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.AddedToken;
import org.pocketbert.tokenizer.ByteBpeLayout;
import org.pocketbert.tokenizer.TokenizerOptions;
import org.pocketbert.tokenizer.Truncation;
import org.pocketbert.tokenizer.UnigramLayout;

/** The content of bundle.json, checked as strictly as by the JSON schema in Python. */
final class Description {
  private static final long SCHEMA_VERSION = 4;
  private static final int MOST_FILES = 32;
  private static final int MOST_TOKENS = 1 << 16;
  private static final List<String> CARD_TEXTS =
      Arrays.asList("license", "base_model", "base_model_license", "dataset", "dataset_license");
  private static final List<String> VERDICTS = Arrays.asList("good", "no better than the baseline", "below the baseline", "not learned");
  private static final List<String> OUTPUT_TYPES = Arrays.asList("float32", "int8");
  private static final List<String> INPUTS = Arrays.asList(Bundle.WORD_IDS, Bundle.MASK, Bundle.TYPE_IDS);
  private static final Pattern DIGEST = Pattern.compile("[0-9a-f]{64}");

  final SortedMap<Integer, String> signatures = new TreeMap<>();
  final Map<String, File> files = new LinkedHashMap<>();

  /** Largest difference of a probability, score or vector element from the golden answers. */
  final double tolerance;

  final List<String> outputs;
  /** Null for an encoder without a task. */
  final TaskHead task;

  /** The head on the vectors of two texts; null in other bundles. */
  final TaskHead pairs;

  final String recipe;
  final TokenizerKind tokenizerKind;

  /** Options of WordPiece; null for other kinds. */
  final TokenizerOptions tokenizer;

  final long vocabSize;

  /** Tokens to find in a text before it is split. */
  final List<AddedToken> addedTokens = new ArrayList<>();

  /** The layouts of unigram and byte-level BPE; null for other kinds. */
  final UnigramLayout layout;
  final ByteBpeLayout byteBpeLayout;

  /** Whether a space before an added token of unigram is a token. */
  final boolean keepsSpace;

  /** Whether byte-level BPE puts a space in front of a text. */
  final boolean addPrefixSpace;

  /** How longer texts are cut. */
  final Truncation truncation;

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
      String found = Sha256.of(content);
      if (!found.equals(sha256)) {
        throw new CheckedFile.Unusable("must have the sha256 " + sha256 + "; it has " + found);
      }
    }
  }

  /**
   * Reads a parsed bundle.json.
   *
   * @param subject start of the error's message
   * @throws UserError lists every violation of the schema
   */
  static Description parse(Object json, String subject) {
    List<String> problems = new ArrayList<>();
    Fields fields = Fields.of(json, "$", problems);
    long version = fields.count("schema_version");
    if (version != SCHEMA_VERSION) {
      String received = problems.isEmpty() ? "; received " + version : "";
      throw new UserError(
          subject + ": schema_version must be " + SCHEMA_VERSION + " for this version" + received
              + "; export the bundle again or update the app");
    }
    Description description = new Description(fields, problems);
    UserError.throwIfAny(problems, subject);
    return description;
  }

  private Description(Fields fields, List<String> problems) {
    Fields given = fields.objectOrNull("task");
    task = given == null ? null : new TaskHead(given, false, problems);
    pairs = TaskHead.ofPairs(fields.objectIfPresent("pairs"), task, problems);
    for (Fields signature : fields.objects("signatures")) {
      long length = signature.count("length");
      String name = signature.string("name");
      if (!name.equals("length_" + length)) {
        problems.add(signature.path("name") + " must be length_" + length);
      }
      if (length > MOST_TOKENS || signatures.put((int) length, name) != null) {
        problems.add(signature.path("length") + " must be unique and at most " + MOST_TOKENS);
      }
      signature.close();
    }
    List<String> inputs = tensors(fields, "inputs", Arrays.asList("int32"), problems);
    if (inputs.size() != INPUTS.size() || !inputs.containsAll(INPUTS)) {
      problems.add("$.inputs must be " + String.join(", ", INPUTS));
    }
    outputs = tensors(fields, "outputs", OUTPUT_TYPES, problems);
    Fields cleaning = fields.object("tokenizer");
    boolean namesTokenizer = cleaning.names().contains("kind");
    tokenizerKind = namesTokenizer ? kind(cleaning, problems) : TokenizerKind.UNNAMED;
    tokenizer =
        namesTokenizer
            ? null
            : new TokenizerOptions(
                cleaning.bool("lowercase"), cleaning.bool("strip_accents"), cleaning.bool("tokenize_chinese_chars"));
    vocabSize = cleaning.count("vocab_size");
    if (cleaning.names().contains("added_tokens")) {
      for (Fields token : cleaning.objects("added_tokens")) {
        addedTokens.add(addedToken(token, vocabSize, problems));
      }
    }
    TokenizerKind kind = tokenizerKind;
    layout = kind == TokenizerKind.UNIGRAM ? layout(cleaning, UnigramLayout.values(), problems) : null;
    byteBpeLayout = kind == TokenizerKind.BYTE_BPE ? layout(cleaning, ByteBpeLayout.values(), problems) : null;
    keepsSpace = namesTokenizer && cleaning.names().contains("keeps_space") && cleaning.bool("keeps_space");
    addPrefixSpace =
        namesTokenizer && cleaning.names().contains("add_prefix_space") && cleaning.bool("add_prefix_space");
    truncation = cleaning.names().contains("truncation") ? truncation(cleaning, problems) : Truncation.HEAD;
    cleaning.close();
    recipe = fields.string("recipe");
    if (!Recipe.NAMES.contains(recipe)) {
      problems.add("$.recipe must be one of " + String.join(", ", Recipe.NAMES) + "; received " + shown(recipe));
    }
    Fields calibration = fields.objectIfPresent("calibration");
    if (calibration != null) {
      calibration.count("texts");
      calibration.string("method");
      checkDigest(calibration.string("sha256"), "$.calibration.sha256", problems);
      calibration.close();
    }
    readColumns(fields.objectIfPresent("columns"));
    readCard(fields.objectIfPresent("model_card"), problems);
    readOutcome(fields.objectIfPresent("outcome"), problems);
    fields.count("num_parameters");
    fields.texts("graph_optimizations");
    fields.texts("tools");
    for (String digest : fields.texts("source")) {
      checkDigest(digest, "$.source", problems);
    }
    if (fields.strings("runtimes").isEmpty()) {
      problems.add("$.runtimes must not be empty");
    }
    readFiles(fields.object("files"), problems);
    tolerance = readAnswers(fields.object("answers"), problems);
    fields.close();
  }

  private static AddedToken addedToken(Fields token, long vocabSize, List<String> problems) {
    String content = token.string("content");
    if (content.isEmpty()) {
      problems.add(token.path("content") + " must not be empty");
    }
    long id = token.whole("id", 0);
    if (id >= vocabSize) {
      problems.add(token.path("id") + " must be below " + vocabSize + "; received " + id);
    }
    AddedToken read =
        new AddedToken(
            content,
            (int) Math.min(id, Integer.MAX_VALUE - 1),
            token.bool("lstrip"),
            token.bool("rstrip"),
            token.bool("single_word"),
            token.bool("normalized"),
            token.bool("special"));
    token.close();
    return read;
  }

  private static void checkDigest(String digest, String path, List<String> problems) {
    if (!DIGEST.matcher(digest).matches()) {
      problems.add(path + " must hold 64 hexadecimal digits");
    }
  }

  private static void readColumns(Fields columns) {
    if (columns == null) {
      return;
    }
    columns.string("text");
    if (columns.names().contains("pair")) {
      columns.string("pair");
    }
    columns.strings("label");
    columns.string("separator");
    columns.close();
  }

  private static void readCard(Fields card, List<String> problems) {
    if (card == null) {
      return;
    }
    for (String name : CARD_TEXTS) {
      card.stringOrNull(name);
    }
    card.strings("limits");
    String run = card.stringOrNull("run_sha256");
    if (run != null) {
      checkDigest(run, "$.model_card.run_sha256", problems);
    }
    if (card.names().contains("latencies")) {
      for (Fields latency : card.objects("latencies")) {
        latency.count("length");
        latency.count("threads");
        latency.number("median_ms");
        latency.string("runtime");
        latency.string("machine");
        latency.close();
      }
    }
    card.close();
  }

  private static void readOutcome(Fields outcome, List<String> problems) {
    if (outcome == null) {
      return;
    }
    outcome.string("metric");
    outcome.number("score");
    outcome.number("float_model");
    outcome.numberOrNull("teacher");
    outcome.count("examples");
    checkDigest(outcome.string("examples_sha256"), "$.outcome.examples_sha256", problems);
    outcome.numbersOrNull("interval", 2);
    if (!outcome.list("baselines").isEmpty()) {
      for (Fields baseline : outcome.objects("baselines")) {
        baseline.string("name");
        baseline.number("score");
        baseline.close();
      }
    }
    if (!VERDICTS.contains(outcome.string("verdict"))) {
      problems.add("$.outcome.verdict must be one of " + String.join(", ", VERDICTS));
    }
    outcome.string("headline");
    outcome.strings("warnings");
    Fields windows = outcome.objectIfPresent("windows");
    if (windows != null) {
      for (String name : windows.names()) {
        windows.count(name);
      }
    }
    outcome.close();
  }

  private static Truncation truncation(Fields tokenizer, List<String> problems) {
    try {
      return Truncation.parse(tokenizer.string("truncation"));
    } catch (UserError error) {
      problems.add(tokenizer.path("truncation") + ": " + error.getMessage());
      return Truncation.HEAD;
    }
  }

  private static TokenizerKind kind(Fields tokenizer, List<String> problems) {
    String word = tokenizer.string("kind");
    for (TokenizerKind kind : TokenizerKind.NAMED) {
      if (kind.word().equals(word)) {
        return kind;
      }
    }
    problems.add(
        tokenizer.path("kind") + " must be one of " + String.join(", ", TokenizerKind.words()) + "; received "
            + shown(word));
    return null;
  }

  /** A kind's first one, unless another one is named. */
  private static <T extends Enum<T>> T layout(Fields tokenizer, T[] layouts, List<String> problems) {
    if (!tokenizer.names().contains("layout")) {
      return layouts[0];
    }
    String word = tokenizer.string("layout");
    List<String> words = new ArrayList<>();
    for (T layout : layouts) {
      words.add(layout.name().toLowerCase(Locale.ROOT));
    }
    if (!words.contains(word)) {
      String choices = String.join(", ", words);
      problems.add(tokenizer.path("layout") + " must be one of " + choices + "; received " + shown(word));
    }
    return layouts[Math.max(words.indexOf(word), 0)];
  }

  private static List<String> tensors(Fields fields, String name, List<String> types, List<String> problems) {
    List<String> names = new ArrayList<>();
    for (Fields tensor : fields.objects(name)) {
      if (names.contains(tensor.string("name"))) {
        problems.add(tensor.path("name") + " must be unique");
      }
      names.add(tensor.string("name"));
      if (!types.contains(tensor.string("dtype"))) {
        problems.add(tensor.path("dtype") + " must be " + String.join(" or ", types));
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
        problems.add("$.files must not list " + name + "; it cannot contain its own digest");
      } else if (!DIGEST.matcher(digest).matches()) {
        problems.add(file.path("sha256") + " must be 64 hexadecimal digits");
      }
      files.put(name, new File(digest, file.count("size_bytes")));
      file.close();
    }
  }

  private double readAnswers(Fields answers, List<String> problems) {
    String name = answers.string("file");
    String digest = answers.string("sha256");
    File listed = files.get(Bundle.ANSWERS);
    if (!name.equals(Bundle.ANSWERS) || listed != null && !listed.sha256.equals(digest)) {
      problems.add("$.answers must have the file " + Bundle.ANSWERS + " and its sha256");
    }
    Double value = answers.doubleOrNull("tolerance");
    answers.close();
    if (value == null || value < 0) {
      problems.add("$.answers.tolerance must be a number of at least 0");
      return 0;
    }
    return value;
  }

  /** The kind of the task; null for an encoder without a task. */
  String taskKind() {
    return task == null ? null : task.kind;
  }

  /** The labels in the order of the logits; empty for tasks without labels. */
  List<String> labels() {
    return task == null ? Collections.emptyList() : task.labels();
  }

  /** Null for other tasks than embeddings. */
  EmbeddingOptions embedding() {
    return task == null ? null : task.embedding;
  }

  /** How many labels the head of an output has; 0 without labels. */
  int labelsOf(String output) {
    TaskHead head = task == null ? null : task.of(output);
    return head == null ? 0 : head.labels.size();
  }

  static String shown(String name) {
    return "'" + (name.length() > 40 ? name.substring(0, 40) + "…" : name) + "'";
  }
}
