package org.pocketbert.bundle;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;
import org.pocketbert.tokenizer.Tokenizer;

/**
 * An opened bundle from {@code pocketbert export}. Its checks read the same bytes as the runtime.
 *
 * <p>The model in a folder is mapped, not copied, so the runtime reads the memory that was hashed. Keep bundles where no
 * other app can write. The members of a zip archive are read into memory.
 */
public final class Bundle {
  /** The input that holds token ids. */
  public static final String WORD_IDS = "input_word_ids";

  /** The input that is 1 at tokens. */
  public static final String MASK = "input_mask";

  /** The input that is 1 at the second text. */
  public static final String TYPE_IDS = "input_type_ids";

  static final String DESCRIPTION = "bundle.json";
  static final String GOLDENS = "goldens.safetensors";
  static final String ANSWERS = "answers.jsonl";
  private static final String MODEL = "model.tflite";
  private static final String LABELS = "labels.txt";
  private static final String HEAD = "head.tflite";
  // The mapped files, which are never copied into memory, and the networks, among them those with one length.
  private static final List<String> MAPPED = Arrays.asList(GOLDENS, "tokenizer.json");
  private static final long MOST_MAPPED_BYTES = 1L << 30;
  private static final long MOST_OTHER_BYTES = 1L << 24;

  private final String name;
  private final String source;
  private final Description description;
  private final ByteBuffer model;
  private final ByteBuffer head;
  private final Tokenizer tokenizer;
  private final Goldens goldens;

  private Bundle(BundleFiles files, Description description, Map<String, ByteBuffer> contents, Tokenizer tokenizer) {
    name = files.name;
    source = files.source;
    this.description = description;
    this.tokenizer = tokenizer;
    model = contents.get(MODEL);
    head = contents.get(HEAD);
    goldens = new Goldens(this, description, contents.get(ANSWERS), contents.get(GOLDENS));
  }

  /**
   * Opens a bundle, and compares all files with their digests, and tokenizer and labels with bundle.json. {@link #check}
   * compares ids and answers with the golden ones.
   *
   * @param path its folder, or a zip file of it
   * @throws UserError lists every missing or damaged file, or every inconsistency, in one line
   */
  public static Bundle open(Path path) {
    return open(BundleFiles.of(path));
  }

  /**
   * Opens a bundle in a zip archive.
   *
   * @param archive all its bytes
   * @throws UserError if the archive is damaged, or has names outside one folder; see also {@link #open(Path)}
   */
  public static Bundle open(byte[] archive) {
    return open(new ByteArrayInputStream(archive));
  }

  /**
   * Opens a bundle in a zip archive, such as an asset of an Android app.
   *
   * @param archive read to the archive's last file, and closed
   * @throws UserError if the archive is damaged, or has names outside one folder; see also {@link #open(Path)}
   */
  public static Bundle open(InputStream archive) {
    return open(new ZipFiles(archive, "archive", "archive"));
  }

  private static Bundle open(BundleFiles files) {
    Description description = describe(files);
    List<String> problems = new ArrayList<>();
    Map<String, ByteBuffer> contents = new LinkedHashMap<>();
    for (Map.Entry<String, Description.File> file : description.files.entrySet()) {
      String name = file.getKey();
      try {
        boolean isMapped = name.endsWith(".tflite") || MAPPED.contains(name);
        long most = isMapped ? MOST_MAPPED_BYTES : MOST_OTHER_BYTES;
        ByteBuffer content = files.read(name, most);
        file.getValue().check(content);
        contents.put(name, content);
      } catch (CheckedFile.Unusable error) {
        problems.add(name + " " + error.getMessage());
      }
    }
    boolean hasLabels = !description.labels().isEmpty();
    List<String> required = new ArrayList<>(Arrays.asList(MODEL, GOLDENS, ANSWERS, LABELS));
    required.addAll(1, description.tokenizerKind.files(description));
    if (description.pairs != null) {
      required.add(HEAD);
    }
    for (String name : required) {
      boolean isListed = description.files.containsKey(name);
      if (!isListed && (hasLabels || !name.equals(LABELS))) {
        problems.add(name + " must be listed among the files in " + DESCRIPTION + "; it is not");
      } else if (isListed && !hasLabels && name.equals(LABELS)) {
        problems.add(name + " must be absent for a task without labels; it is listed in " + DESCRIPTION);
      }
    }
    throwIfAny(problems, files.source);
    Tokenizer tokenizer = BundleTokenizer.open(description, contents, problems);
    if (hasLabels && !CheckedFile.text(contents.get(LABELS)).equals(String.join("\n", description.labels()) + "\n")) {
      problems.add(
          LABELS + " must hold the labels of " + DESCRIPTION + " in order, one per line; it does not");
    }
    throwIfAny(problems, files.source);
    return new Bundle(files, description, contents, tokenizer);
  }

  /**
   * Compares ids, offsets and answers with the golden ones in answers.jsonl.
   *
   * <p>Call it once on a new kind of phone: another processor sums in another order.
   *
   * @param network runs the bundle's files; a {@link PairNetwork} for separate pairs
   * @throws UserError names the lines with other ids or offsets, with a number that differs by more than the tolerance in
   *     bundle.json, or with another label or span, unless two choices nearly tie; or a file is damaged
   */
  public void check(Network network) {
    List<String> problems = new GoldenAnswerCheck(this, network, description.tolerance).problems(goldens.lines());
    throwIfAny(problems);
  }

  /** What bundle.json says about a bundle. */
  public static final class Summary {
    /** Lengths, ascending. */
    public final int[] lengths;

    /** See {@link Bundle#taskKind}. */
    public final String taskKind;

    private Summary(Description description) {
      lengths = lengths(description);
      taskKind = description.taskKind();
    }
  }

  /**
   * Reads bundle.json and no other file, so listing many bundles is fast.
   *
   * @throws UserError if bundle.json is missing or wrong
   */
  public static Summary summary(Path path) {
    return new Summary(describe(BundleFiles.folder(path)));
  }

  /**
   * Returns the files listed in bundle.json, and bundle.json itself, with their sizes in bytes. Names have no folders.
   *
   * @throws UserError if bundle.json is missing or wrong, or lists every file that is missing or of another size
   */
  public static Map<String, Long> listedFiles(Path path) {
    BundleFiles files = BundleFiles.folder(path);
    Description description = describe(files);
    Map<String, Long> sizes = new LinkedHashMap<>();
    List<String> problems = new ArrayList<>();
    List<String> names = new ArrayList<>(description.files.keySet());
    names.add(DESCRIPTION);
    for (String name : names) {
      try {
        sizes.put(name, files.size(name));
        if (description.files.containsKey(name)) {
          description.files.get(name).checkSize(sizes.get(name));
        }
      } catch (CheckedFile.Unusable error) {
        problems.add(name + " " + error.getMessage());
      }
    }
    throwIfAny(problems, files.source);
    return sizes;
  }

  /** Throws a {@link UserError} about this bundle if there are problems. */
  void throwIfAny(List<String> problems) {
    throwIfAny(problems, source);
  }

  private static void throwIfAny(List<String> problems, String source) {
    if (!problems.isEmpty()) {
      problems.add("export it again, or copy all its files");
    }
    UserError.throwIfAny(problems, "bundle " + source);
  }

  private static Description describe(BundleFiles files) {
    try {
      ByteBuffer content = files.read(DESCRIPTION, MOST_OTHER_BYTES);
      String text = StandardCharsets.UTF_8.newDecoder().decode(content).toString();
      return Description.parse(Json.parse(text), files.source + "/" + DESCRIPTION);
    } catch (CheckedFile.Unusable | JsonError error) {
      throw new UserError(
          "bundle " + files.source + ": " + DESCRIPTION + " " + error.getMessage() + "; export it again");
    } catch (CharacterCodingException error) {
      throw new UserError("bundle " + files.source + ": " + DESCRIPTION + " must be UTF-8; export it again");
    }
  }

  private static int[] lengths(Description description) {
    int[] lengths = new int[description.signatures.size()];
    int count = 0;
    for (int length : description.signatures.keySet()) {
      lengths[count++] = length;
    }
    return lengths;
  }

  /** The name of the folder or the zip file; for an archive without a name, {@code archive}. */
  public String name() {
    return name;
  }

  /** The model file's name. */
  public String modelFile() {
    return MODEL;
  }

  /** The model file's bytes; every call returns the same memory. */
  public ByteBuffer model() {
    return model.duplicate();
  }

  /**
   * The bytes of the head on the vectors of two texts; every call returns the same memory. Its signature is
   * {@link SeparatePairs#HEAD}.
   *
   * @throws UserError if this is no bundle for separate pairs
   */
  public ByteBuffer pairHead() {
    pairs();
    return head.duplicate();
  }

  /** The model file's verified SHA-256. */
  public String modelSha256() {
    return description.files.get(MODEL).sha256;
  }

  /** The recipe: float32, dynamic_wi8, … */
  public String recipe() {
    return description.recipe;
  }

  /** The model's sequence lengths, ascending. */
  public int[] lengths() {
    return lengths(description);
  }

  /** The labels in the order of the logits; empty for tasks without labels. */
  public List<String> labels() {
    return Collections.unmodifiableList(description.labels());
  }

  /** The bundle's tokenizer. */
  public Tokenizer tokenizer() {
    return tokenizer;
  }

  /**
   * Returns the signature for a length.
   *
   * @throws UserError if the bundle has none
   */
  public String signature(int length) {
    String name = description.signatures.get(length);
    if (name == null) {
      throw new UserError("a length must be one of " + Arrays.toString(lengths()) + "; received " + length);
    }
    return name;
  }

  /** The task in bundle.json: classification, …; null for an encoder without a task. */
  public String taskKind() {
    return description.taskKind();
  }

  /** The prompts of an embedding model: name to the text in front of an input; empty for none and for other tasks. */
  public Map<String, String> prompts() {
    Map<String, String> none = Collections.emptyMap();
    return description.embedding() == null ? none : Collections.unmodifiableMap(description.embedding().prompts);
  }

  /** The kind of the answers: of the head on separate pairs if there is one, otherwise {@link #taskKind}. */
  public String answerKind() {
    return description.pairs == null ? taskKind() : description.pairs.kind;
  }

  /** The task in bundle.json; null for an encoder without one. */
  TaskHead task() {
    return description.task;
  }

  /**
   * The head on the vectors of two texts.
   *
   * @throws UserError if this is no bundle for separate pairs
   */
  TaskHead pairs() {
    if (description.pairs == null) {
      throw new UserError("separate pairs need a bundle for them; " + name() + " is for " + taskKind());
    }
    return description.pairs;
  }

  /** Whether this is a bundle for separate pairs, which {@link SeparatePairs} answers. */
  public boolean hasPairs() {
    return description.pairs != null;
  }

  /** Returns the kind of the head that an output belongs to; null for an encoder without a task. */
  public TaskKind kindOf(String output) {
    TaskHead head = description.task == null ? null : description.task.of(output);
    return head == null ? null : TaskKind.of(head.kind);
  }

  /** Returns how many labels the head of an output has; 0 without labels. */
  public int labelsOf(String output) {
    return description.labelsOf(output);
  }

  /** Name of the prompt for texts that select none; null for no prompt. */
  public String defaultPrompt() {
    return description.embedding() == null ? null : description.embedding().defaultPrompt;
  }

  /** Maximum sequence length of an input: the longest length, or less if an embedding model was made for less. */
  public int maxLength() {
    int longest = description.signatures.lastKey();
    Integer given = description.embedding() == null ? null : description.embedding().maxLength;
    return given == null ? longest : Math.min(given, longest);
  }

  /** Inputs with the vocabulary's last token only: a model with a shorter embedding table fails on them. */
  public Map<String, int[]> lastPiece(int length) {
    int[] ids = new int[length];
    Arrays.fill(ids, tokenizer.padId());
    ids[0] = (int) description.vocabSize - 1;
    int[] mask = new int[length];
    mask[0] = 1;
    Map<String, int[]> inputs = new LinkedHashMap<>();
    inputs.put(WORD_IDS, ids);
    inputs.put(MASK, mask);
    inputs.put(TYPE_IDS, new int[length]);
    return inputs;
  }

  /**
   * All golden examples, at their own lengths. The first call reads them, and compares the ids of all golden texts.
   *
   * @throws UserError lists every inconsistency in answers.jsonl and goldens.safetensors, in one line
   */
  public List<Golden> goldens() {
    return goldens.examples();
  }

  /**
   * Returns the golden examples that fit a length, padded to it. If outputs are per token, only examples of this length
   * fit.
   *
   * @throws UserError if none fits; or see {@link #goldens()}
   */
  public List<Golden> goldens(int length) {
    return goldens.examples(length);
  }
}
