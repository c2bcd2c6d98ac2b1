package org.pocketbert.bundle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.pocketbert.Sha256;
import org.pocketbert.json.Json;

/** A handmade bundle with a dummy model of a few bytes. Tests change parts of it. */
public final class BundleFolder {
  public final Path path;
  public final Map<String, Object> description = new LinkedHashMap<>();

  /** The content of goldens.safetensors. */
  public final Map<String, Answer> answers = new LinkedHashMap<>();

  // The padding id is 1: a 0 would hide missing padding.
  private static final String VOCABULARY = "[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n";

  /** Writes all files except {@code bundle.json}; call {@link #write} for it. */
  public BundleFolder(Path path) throws IOException {
    this.path = Files.createDirectories(path);
    Map<String, Object> files = new LinkedHashMap<>();
    files.put("model.tflite", file("model.tflite", "not a model"));
    files.put("vocab.txt", file("vocab.txt", VOCABULARY));
    files.put("labels.txt", file("labels.txt", "bad\ngood\n"));
    description.put("schema_version", 2);
    description.put("task", object("kind", "classification", "name", "mood", "labels", Arrays.asList("bad", "good")));
    description.put(
        "signatures", Arrays.asList(object("name", "length_7", "length", 7), object("name", "length_4", "length", 4)));
    List<Object> inputs = new ArrayList<>();
    for (String name : new String[] {"input_word_ids", "input_mask", "input_type_ids"}) {
      inputs.add(object("name", name, "dtype", "int32"));
    }
    description.put("inputs", inputs);
    description.put("outputs", Arrays.asList(object("name", "logits", "dtype", "float32")));
    description.put("tokenizer", object("lowercase", true, "strip_accents", true, "tokenize_chinese_chars", true, "vocab_size", 7));
    description.put("recipe", "float32");
    description.put("runtimes", Arrays.asList("litert"));
    description.put("graph_optimizations", object("first_token_only", "applied"));
    description.put("num_parameters", 11);
    description.put("source", object("model.safetensors", new String(new char[64]).replace('\0', 'a')));
    description.put("tools", object("python", "3.11"));
    description.put("files", files);
    description.put("goldens", new ArrayList<>(Arrays.asList(golden())));
    for (String kind : new String[] {"outputs", "exported_outputs"}) {
      answers.put("0/" + kind + "/logits", new Answer(new int[] {1, 2}, -2, 0.5f));
    }
    write();
  }

  /** {@code good}: 3 tokens, length 4. */
  public static Map<String, Object> golden() {
    return golden(4);
  }

  /** {@code good}: 3 tokens, any length. */
  public static Map<String, Object> golden(int length) {
    Map<String, Object> inputs = new LinkedHashMap<>();
    inputs.put("input_word_ids", row(length, 1, 2, 5, 3));
    inputs.put("input_mask", row(length, 0, 1, 1, 1));
    inputs.put("input_type_ids", row(length, 0, 0, 0, 0));
    return object("text", "Good", "pair", null, "length", length, "inputs", inputs);
  }

  private static List<List<Integer>> row(int length, Integer padding, Integer... first) {
    List<Integer> row = new ArrayList<>(Collections.nCopies(length, padding));
    Collections.copy(row, Arrays.asList(first));
    return Collections.singletonList(row);
  }

  /** A tensor of goldens.safetensors. */
  public static final class Answer {
    final int[] shape;
    final float[] values;

    public Answer(int[] shape, float... values) {
      this.shape = shape;
      this.values = values;
    }
  }

  /** Turns it into a bundle for embeddings; call {@link #write} afterwards. */
  public void embed(float[]... vectors) {
    description.put("outputs", Arrays.asList(object("name", "embedding", "dtype", "float32")));
    Map<String, Object> options =
        object(
            "pooling", "mean", "normalize", true, "dimensions", null, "dense_bias", true, "dense_activation", "tanh",
            "dense_residual", false,
            "max_length", null, "prompts", new ArrayList<>(), "default_prompt", null);
    description.put("task", object("kind", "embedding", "name", "", "labels", new ArrayList<>(), "embedding", options));
    part("files").remove("labels.txt");
    description.put("goldens", new ArrayList<>(Collections.nCopies(vectors.length, golden())));
    answers.clear();
    for (int i = 0; i < vectors.length; i++) {
      for (String kind : new String[] {"outputs", "exported_outputs"}) {
        answers.put(i + "/" + kind + "/embedding", new Answer(new int[] {1, vectors[i].length}, vectors[i].clone()));
      }
    }
  }

  /** Turns it into a bundle for separate pairs, with this task of its head; call {@link #write} afterwards. */
  public void pair(Map<String, Object> task) throws IOException {
    embed(new float[] {0.6f, 0.8f});
    description.put("pairs", object("task", task));
    part("files").put("head.tflite", file("head.tflite", "not a head"));
  }

  /** Keeps length 7 only, for the GPU. */
  public void keepOneLength() throws IOException {
    description.put("signatures", Arrays.asList(object("name", "length_7", "length", 7)));
    description.put("goldens", Arrays.asList(golden(7)));
    write();
  }

  /** Writes {@code goldens.safetensors} and {@code bundle.json}. */
  public void write() throws IOException {
    Map<String, Object> header = new LinkedHashMap<>();
    ByteBuffer data = ByteBuffer.allocate(answers.values().stream().mapToInt(each -> 4 * each.values.length).sum());
    data.order(ByteOrder.LITTLE_ENDIAN);
    for (Map.Entry<String, Answer> answer : answers.entrySet()) {
      int start = data.position();
      for (float value : answer.getValue().values) {
        data.putFloat(value);
      }
      List<Integer> shape = Arrays.stream(answer.getValue().shape).boxed().collect(Collectors.toList());
      List<Integer> offsets = Arrays.asList(start, data.position());
      header.put(answer.getKey(), object("dtype", "F32", "shape", shape, "data_offsets", offsets));
    }
    part("files").put("goldens.safetensors", file("goldens.safetensors", safetensors(Json.write(header), data.array())));
    describe();
  }

  /** A file in this format; the header may contradict it. */
  public static byte[] safetensors(String header, byte[] data) {
    byte[] text = header.getBytes(StandardCharsets.UTF_8);
    ByteBuffer content = ByteBuffer.allocate(8 + text.length + data.length).order(ByteOrder.LITTLE_ENDIAN);
    return content.putLong(text.length).put(text).put(data).array();
  }

  /** Writes {@code bundle.json} only. */
  public void describe() throws IOException {
    Files.write(path.resolve("bundle.json"), Json.write(description).getBytes(StandardCharsets.UTF_8));
  }

  /** Writes a file and returns its entry. */
  public Map<String, Object> file(String name, String content) throws IOException {
    return file(name, content.getBytes(StandardCharsets.UTF_8));
  }

  /** Writes a file and returns its entry. */
  public Map<String, Object> file(String name, byte[] bytes) throws IOException {
    Files.write(path.resolve(name), bytes);
    return object("sha256", Sha256.of(ByteBuffer.wrap(bytes)), "size_bytes", bytes.length);
  }

  @SuppressWarnings("unchecked")
  public Map<String, Object> part(String name) {
    return (Map<String, Object>) description.get(name);
  }

  public static Map<String, Object> object(Object... keysAndValues) {
    Map<String, Object> object = new LinkedHashMap<>();
    for (int i = 0; i < keysAndValues.length; i += 2) {
      object.put((String) keysAndValues[i], keysAndValues[i + 1]);
    }
    return object;
  }
}
