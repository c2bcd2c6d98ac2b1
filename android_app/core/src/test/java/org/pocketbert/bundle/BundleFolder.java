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

  /** The lines of answers.jsonl. */
  public final List<Map<String, Object>> lines = new ArrayList<>();

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
    description.put("schema_version", 4);
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
    lines.add(golden());
    for (String kind : new String[] {"outputs", "exported_outputs"}) {
      answers.put("0/" + kind + "/logits", new Answer(new int[] {1, 2}, -2, 0.5f));
    }
    write();
  }

  /** {@code Good}: 3 tokens, for length 4. */
  public static Map<String, Object> golden() {
    return golden(3);
  }

  /** {@code Good}, so often that there are as many tokens. Its answer is that for the logits -2 and 0.5. */
  public static Map<String, Object> golden(int tokens) {
    int words = tokens - 2;
    List<Integer> ids = new ArrayList<>(Collections.nCopies(tokens, 5));
    ids.set(0, 2);
    ids.set(tokens - 1, 3);
    List<List<Integer>> offsets = new ArrayList<>(Collections.nCopies(tokens, Arrays.asList(0, 0)));
    for (int word = 0; word < words; word++) {
      offsets.set(1 + word, Arrays.asList(5 * word, 5 * word + 4));
    }
    List<Integer> types = Collections.nCopies(tokens, 0);
    List<Object> windows = new ArrayList<>(Arrays.asList(object("ids", ids, "type_ids", types, "offsets", offsets)));
    // exp(-2) / (exp(-2) + exp(0.5)) = 1 / (1 + exp(2.5)).
    Map<String, Object> answer = object("label", "good", "probabilities", object("bad", 0.075858, "good", 0.924142));
    String text = String.join(" ", Collections.nCopies(words, "Good"));
    return object("text", text, "windows", windows, "answer", answer);
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
    lines.clear();
    answers.clear();
    for (int i = 0; i < vectors.length; i++) {
      lines.add(golden());
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
    write();
  }

  /** Writes {@code answers.jsonl}, {@code goldens.safetensors} and {@code bundle.json}. */
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
    String content = lines.stream().map(line -> Json.write(line) + "\n").collect(Collectors.joining());
    Map<String, Object> entry = file("answers.jsonl", content);
    part("files").put("answers.jsonl", entry);
    description.put("answers", object("file", "answers.jsonl", "sha256", entry.get("sha256"), "tolerance", 0.001));
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
