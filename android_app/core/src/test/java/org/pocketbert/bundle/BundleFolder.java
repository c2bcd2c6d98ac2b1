package org.pocketbert.bundle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.json.Json;

/** A bundle made by hand, whose model is a few bytes that nobody runs; tests change what they are about. */
public final class BundleFolder {
  public final Path path;
  public final Map<String, Object> description = new LinkedHashMap<>();

  // The padding id is 1: a 0 would hide that somebody forgot it.
  private static final String VOCABULARY = "[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n";

  /** Files are written at once, {@code bundle.json} by {@link #write}. */
  public BundleFolder(Path path) throws IOException {
    this.path = Files.createDirectories(path);
    Map<String, Object> files = new LinkedHashMap<>();
    files.put("model.tflite", file("model.tflite", "not a model"));
    files.put("vocab.txt", file("vocab.txt", VOCABULARY));
    description.put("schema_version", 1);
    description.put("task", object("kind", "classification", "name", "mood", "labels", Arrays.asList("bad", "good")));
    description.put(
        "signatures", Arrays.asList(object("name", "length_7", "length", 7), object("name", "length_4", "length", 4)));
    List<Object> inputs = new ArrayList<>();
    for (String name : new String[] {"input_word_ids", "input_mask", "input_type_ids"}) {
      inputs.add(object("name", name, "dtype", "int32"));
    }
    description.put("inputs", inputs);
    description.put("outputs", Arrays.asList(object("name", "logits", "dtype", "float32")));
    description.put("tokenizer", object("lowercase", true, "vocab_size", 7));
    description.put("recipe", "float32");
    description.put("runtimes", Arrays.asList("litert"));
    description.put("lowerings", object("first_token_only", "applied"));
    description.put("num_parameters", 11);
    description.put("source", object("model.safetensors", new String(new char[64]).replace('\0', 'a')));
    description.put("tools", object("python", "3.11"));
    description.put("files", files);
    description.put("goldens", new ArrayList<>(Arrays.asList(golden())));
    write();
  }

  /** {@code good}: 3 tokens in 4 places. */
  public static Map<String, Object> golden() {
    Map<String, Object> inputs = new LinkedHashMap<>();
    inputs.put("input_word_ids", Arrays.asList(Arrays.asList(2, 5, 3, 1)));
    inputs.put("input_mask", Arrays.asList(Arrays.asList(1, 1, 1, 0)));
    inputs.put("input_type_ids", Arrays.asList(Arrays.asList(0, 0, 0, 0)));
    List<?> logits = Arrays.asList(Arrays.asList(-2.0, 0.5));
    return object(
        "text", "Good", "pair", null, "length", 4, "inputs", inputs, "outputs", object("logits", logits),
        "exported_outputs", object("logits", logits));
  }

  /** Leaves length 7 alone, as the GPU wants it. */
  public void keepOneLength() throws IOException {
    description.put("signatures", Arrays.asList(object("name", "length_7", "length", 7)));
    write();
  }

  public void write() throws IOException {
    Files.write(path.resolve("bundle.json"), Json.write(description).getBytes(StandardCharsets.UTF_8));
  }

  /** Writes a file and gives its entry. */
  public Map<String, Object> file(String name, String content) throws IOException {
    byte[] bytes = content.getBytes(StandardCharsets.UTF_8);
    Files.write(path.resolve(name), bytes);
    return object("sha256", CheckedFile.sha256(ByteBuffer.wrap(bytes)), "size_bytes", bytes.length);
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
