package org.pocketbert.bundle;

import java.io.IOException;
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
import org.pocketbert.tokenizer.Vocabulary;
import org.pocketbert.tokenizer.WordPieceTokenizer;

/**
 * An opened bundle: what {@code pocketbert export} wrote, checked on the bytes that will be used.
 *
 * <p>The model stays a mapping of its file: the memory that was hashed is the memory that the runtime reads. Keep
 * bundles where no other app can write.
 */
public final class Bundle {
  /** The input that holds token ids. */
  public static final String WORD_IDS = "input_word_ids";

  /** The input that is 1 at tokens. */
  public static final String MASK = "input_mask";

  /** The input that is 1 at the second text. */
  public static final String TYPE_IDS = "input_type_ids";

  static final String DESCRIPTION = "bundle.json";
  // As pocketbert_export.checks has them.
  private static final List<String> TOKEN_OUTPUTS =
      Arrays.asList("sequence_output", "start_logits", "end_logits", "prediction_logits");
  private static final String MODEL = "model.tflite";
  private static final String VOCABULARY = "vocab.txt";
  private static final long MOST_MODEL_BYTES = 1L << 30;
  private static final long MOST_OTHER_BYTES = 1L << 24;

  private final Path directory;
  private final Description description;
  private final ByteBuffer model;
  private final WordPieceTokenizer tokenizer;

  private Bundle(Path directory, Description description, ByteBuffer model, Vocabulary vocabulary) {
    this.directory = directory;
    this.description = description;
    this.model = model;
    tokenizer = new WordPieceTokenizer(vocabulary, description.lowercase, true);
  }

  /**
   * Opens a bundle.
   *
   * @param path its folder
   * @throws UserError one line that lists every missing or damaged file, or everything wrong with bundle.json
   */
  public static Bundle open(Path path) {
    Description description = describe(path);
    Path directory = real(path);
    List<String> problems = new ArrayList<>();
    Map<String, ByteBuffer> contents = new LinkedHashMap<>();
    for (Map.Entry<String, Description.File> file : description.files.entrySet()) {
      String name = file.getKey();
      try {
        long most = name.equals(MODEL) ? MOST_MODEL_BYTES : MOST_OTHER_BYTES;
        ByteBuffer content = CheckedFile.map(directory, name, most);
        file.getValue().check(content);
        contents.put(name, content);
      } catch (CheckedFile.Unusable error) {
        problems.add(name + " " + error.getMessage());
      }
    }
    for (String name : new String[] {MODEL, VOCABULARY}) {
      if (!description.files.containsKey(name)) {
        problems.add(name + " must be listed among the files in " + DESCRIPTION + "; it is not");
      }
    }
    throwIfAny(problems, path);
    Vocabulary vocabulary = Vocabulary.parse(CheckedFile.bytes(contents.get(VOCABULARY)));
    if (vocabulary.size() != description.vocabSize) {
      throw new UserError(
          "bundle " + path + ": " + VOCABULARY + " must have " + description.vocabSize + " pieces, as " + DESCRIPTION
              + " says; it has " + vocabulary.size());
    }
    return new Bundle(directory, description, contents.get(MODEL), vocabulary);
  }

  /**
   * The lengths that a bundle says it has, ascending; nothing but bundle.json is read, so that many can be listed.
   *
   * @throws UserError if that is missing or wrong
   */
  public static int[] listedLengths(Path path) {
    return lengths(describe(path));
  }

  /**
   * The files that a bundle says it has, bundle.json among them, with their sizes in bytes: plain names, without folders.
   *
   * @throws UserError if bundle.json is missing or wrong, or lists every file that is missing or of another size
   */
  public static Map<String, Long> listedFiles(Path path) {
    Description description = describe(path);
    Path directory = real(path);
    Map<String, Long> sizes = new LinkedHashMap<>();
    List<String> problems = new ArrayList<>();
    List<String> names = new ArrayList<>(description.files.keySet());
    names.add(DESCRIPTION);
    for (String name : names) {
      try {
        sizes.put(name, CheckedFile.size(directory, name));
        if (description.files.containsKey(name)) {
          description.files.get(name).checkSize(sizes.get(name));
        }
      } catch (CheckedFile.Unusable error) {
        problems.add(name + " " + error.getMessage());
      }
    }
    throwIfAny(problems, path);
    return sizes;
  }

  private static void throwIfAny(List<String> problems, Path path) {
    if (!problems.isEmpty()) {
      problems.add("export it again, or copy it whole");
    }
    UserError.throwIfAny(problems, "bundle " + path);
  }

  private static Description describe(Path path) {
    try {
      String text =
          StandardCharsets.UTF_8
              .newDecoder()
              .decode(CheckedFile.map(real(path), DESCRIPTION, MOST_OTHER_BYTES))
              .toString();
      return Description.parse(Json.parse(text), path + "/" + DESCRIPTION);
    } catch (CheckedFile.Unusable | JsonError error) {
      throw new UserError("bundle " + path + ": " + DESCRIPTION + " " + error.getMessage() + "; export it again");
    } catch (CharacterCodingException error) {
      throw new UserError("bundle " + path + ": " + DESCRIPTION + " must be UTF-8; export it again");
    }
  }

  private static Path real(Path path) {
    try {
      return path.toRealPath();
    } catch (IOException error) {
      throw new UserError("a bundle must be a folder that pocketbert export wrote; received " + path);
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

  /** The folder's name. */
  public String name() {
    return directory.getFileName().toString();
  }

  /** The model file's name. */
  public String modelFile() {
    return MODEL;
  }

  /** The model file's bytes; the same memory at every call. */
  public ByteBuffer model() {
    return model.duplicate();
  }

  /** The model file's digest, which its bytes have. */
  public String modelSha256() {
    return description.files.get(MODEL).sha256;
  }

  /** How many numbers are stored how: float32, dynamic_wi8, … */
  public String recipe() {
    return description.recipe;
  }

  /** Numbers of tokens that the model can be called with, ascending. */
  public int[] lengths() {
    return lengths(description);
  }

  /** The names of a classifier's answers, in the order of its logits; empty for other tasks. */
  public List<String> labels() {
    return Collections.unmodifiableList(description.labels);
  }

  /** The tokenizer of the bundle's vocabulary. */
  public WordPieceTokenizer tokenizer() {
    return tokenizer;
  }

  /**
   * The signature for a number of tokens.
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

  /**
   * The golden examples that fit a length, padded to it; where there is an answer for each token, those of that length.
   *
   * @throws UserError if none fits
   */
  public List<Golden> goldens(int length) {
    List<Golden> fitting = new ArrayList<>();
    for (Golden golden : description.goldens) {
      boolean answersTokens = !Collections.disjoint(golden.exportedOutputs.keySet(), TOKEN_OUTPUTS);
      if (answersTokens ? golden.length == length : golden.tokenCount() <= length) {
        Map<String, int[]> inputs = golden.inputsAt(length, tokenizer.padId());
        fitting.add(new Golden(golden.text, golden.pair, length, inputs, golden.exportedOutputs));
      }
    }
    if (fitting.isEmpty()) {
      throw new UserError("a bundle needs a golden example of at most " + length + " tokens; " + name() + " has none");
    }
    return fitting;
  }

  /**
   * Tokenizes the golden examples' texts.
   *
   * @throws UserError if one has other ids than the bundle says
   */
  public void checkTokenizer() {
    for (Golden golden : description.goldens) {
      Map<String, int[]> inputs = tokenizer.encode(golden.text, golden.pair, golden.length).byName();
      for (Map.Entry<String, int[]> input : golden.inputs.entrySet()) {
        if (!Arrays.equals(input.getValue(), inputs.get(input.getKey()))) {
          throw new UserError(
              "bundle " + name() + ": every golden example's text must have the ids that " + DESCRIPTION
                  + " gives; one of " + golden.length + " places has others; export it again");
        }
      }
    }
  }
}
