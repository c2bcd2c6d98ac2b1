package org.pocketbert.host;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Classification;
import org.pocketbert.bundle.HeadAnswer;
import org.pocketbert.bundle.LabelledSpan;
import org.pocketbert.bundle.Network;
import org.pocketbert.bundle.SentenceEmbedder;
import org.pocketbert.bundle.SeparatePairs;
import org.pocketbert.bundle.SeveralHeads;
import org.pocketbert.bundle.SpanFinder;
import org.pocketbert.bundle.TextClassifier;
import org.pocketbert.engine.BundleEngines;
import org.pocketbert.engine.EngineException;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;

/** Answers texts with a bundle: labels, embeddings, nearest texts or spans, in the JSON lines of {@code pocketbert}. */
final class Answers {
  static final String COMMAND = "answer";
  static final String HELP =
      """
      Answers texts from standard input with a bundle, one JSON object per line.

      A bundle for embeddings gives the embedding, or the nearest lines of --search. A bundle for token classification
      gives the spans, one for classes or several labels gives the labels and their probabilities, and one with several
      heads gives the answer of each. The input has one text per line, or one JSON object with "text" per line; for
      labels of pairs also with "pair". A bundle for separate pairs gives the answer of a line with "pair", and otherwise
      the vector of the text.

      usage: java -jar pocketbert-host.jar answer [flags] BUNDLE < texts.txt
        --search=FILE              print the nearest lines of this file
        --top-k=5                  number of nearest lines (default: 5)
        --prompt-name=NAME         prompt of the texts (default: the model's default prompt)
        --search-prompt-name=NAME  prompt of the lines of --search (default: the model's default prompt)
        --threads=1                the runtime's threads (default: 1)
        --help                     show this text
      """;

  private static final List<String> OF_EMBEDDINGS =
      List.of("--search", "--top-k", "--prompt-name", "--search-prompt-name");

  private final Map<String, String> flags = new LinkedHashMap<>();
  private final List<String> bundles = new ArrayList<>();

  private Answers(List<String> words) {
    List<String> problems = new ArrayList<>();
    for (String word : words) {
      String[] parts = word.split("=", 2);
      boolean known = OF_EMBEDDINGS.contains(parts[0]) || parts[0].equals("--threads");
      if (known && parts.length == 2 && !parts[1].isEmpty()) {
        flags.put(parts[0], parts[1]);
      } else if (word.startsWith("-")) {
        String names = String.join("=, ", OF_EMBEDDINGS);
        problems.add("a flag must be one of " + names + "=, --threads=, --help; received " + word);
      } else {
        bundles.add(word);
      }
    }
    for (String name : List.of("--threads", "--top-k")) {
      if (!number(name, 1).matches("[1-9][0-9]{0,5}")) {
        problems.add(name + " must be a positive number; received " + flags.get(name));
      }
    }
    if (bundles.size() != 1) {
      problems.add("pass one bundle; received " + (bundles.isEmpty() ? "none" : String.join(" ", bundles)));
    }
    UserError.throwIfAny(problems, "pocketbert-host " + COMMAND);
  }

  /** Reads a command line and texts, and prints an answer for each text. */
  static void run(List<String> words, InputStream input, PrintStream output) throws IOException {
    if (words.contains("--help")) {
      output.print(HELP);
      return;
    }
    new Answers(words).answer(input, output);
  }

  private void answer(InputStream input, PrintStream output) throws IOException {
    Bundle bundle = Bundle.open(Path.of(bundles.get(0)));
    try (BundleEngines engines = new BundleEngines(bundle, Integer.parseInt(number("--threads", 1)))) {
      Answer answer = answer(bundle, engines);
      for (String[] row : texts(input, "standard input", null).values()) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("text", row[0]);
        answer.add(row, line);
        output.println(Json.write(line));
      }
    } catch (EngineException error) {
      throw new UserError("bundle " + bundles.get(0) + ": " + error.getMessage());
    }
  }

  private interface Answer {
    void add(String[] row, Map<String, Object> line);
  }

  private Answer answer(Bundle bundle, BundleEngines network) throws IOException {
    String kind = bundle.taskKind();
    if (bundle.hasPairs() && OF_EMBEDDINGS.stream().noneMatch(flags::containsKey)) {
      return pairs(bundle, network);
    }
    if ("embedding".equals(kind)) {
      return embeddings(bundle, network);
    }
    for (String flag : OF_EMBEDDINGS) {
      if (flags.containsKey(flag)) {
        throw new UserError(flag + " needs a bundle for embedding; " + bundle.name() + " is for " + kind);
      }
    }
    if ("several".equals(kind)) {
      return heads(bundle, network);
    }
    boolean labels = "classification".equals(kind) || "multi_label".equals(kind);
    return labels ? labels(bundle, network) : spans(bundle, network);
  }

  private static Answer labels(Bundle bundle, Network network) {
    TextClassifier classifier = new TextClassifier(bundle, network);
    boolean several = "multi_label".equals(bundle.taskKind());
    return (row, line) -> {
      if (row[1] != null) {
        line.put("pair", row[1]);
      }
      add(classifier.classify(row[0], row[1]), several, line);
    };
  }

  private static void add(Classification found, boolean several, Map<String, Object> line) {
    line.put(several ? "labels" : "label", several ? found.labels : found.label);
    Map<String, Object> probabilities = new LinkedHashMap<>();
    found.probabilities.forEach((label, probability) -> probabilities.put(label, rounded(probability)));
    line.put("probabilities", probabilities);
  }

  private static Answer heads(Bundle bundle, Network network) {
    SeveralHeads heads = new SeveralHeads(bundle, network);
    return (row, line) ->
        heads
            .answer(row[0])
            .forEach(
                (name, found) -> {
                  Map<String, Object> answer = new LinkedHashMap<>();
                  add(found, answer);
                  line.put(name, answer);
                });
  }

  private static void add(HeadAnswer answer, Map<String, Object> line) {
    if (answer.spans != null) {
      line.put("spans", described(answer.spans));
    } else if (answer.classification != null) {
      add(answer.classification, answer.severalLabels, line);
    } else {
      line.put("score", answer.score);
    }
  }

  private static Answer pairs(Bundle bundle, BundleEngines network) {
    SeparatePairs pairs = new SeparatePairs(bundle, network);
    return (row, line) -> {
      if (row[1] == null) {
        line.put("embedding", doubles(pairs.vector(row[0])));
      } else {
        line.put("pair", row[1]);
        add(pairs.predict(row[0], row[1]), line);
      }
    };
  }

  private static Answer spans(Bundle bundle, Network network) {
    SpanFinder finder = new SpanFinder(bundle, network);
    return (row, line) -> line.put("spans", described(finder.find(row[0])));
  }

  private static List<Object> described(List<LabelledSpan> found) {
    List<Object> spans = new ArrayList<>();
    for (LabelledSpan span : found) {
      Map<String, Object> described = new LinkedHashMap<>();
      described.put("text", span.text);
      described.put("label", span.label);
      described.put("start", span.start);
      described.put("end", span.end);
      described.put("probability", rounded(span.probability));
      spans.add(described);
    }
    return spans;
  }

  private Answer embeddings(Bundle bundle, Network network) throws IOException {
    SentenceEmbedder embedder = new SentenceEmbedder(bundle, network);
    String prompt = flags.get("--prompt-name");
    String file = flags.get("--search");
    if (file == null) {
      return (row, line) -> line.put("embedding", doubles(embedder.embed(row[0], prompt)));
    }
    if (!Files.isRegularFile(Path.of(file))) {
      throw new UserError("--search must be a file of texts; received " + file);
    }
    Map<Integer, String[]> documents;
    try (InputStream stream = Files.newInputStream(Path.of(file))) {
      documents = texts(stream, file, false);
    }
    List<Integer> numbers = new ArrayList<>(documents.keySet());
    List<float[]> vectors = new ArrayList<>();
    for (String[] document : documents.values()) {
      vectors.add(embedder.embed(document[0], flags.get("--search-prompt-name")));
    }
    int most = Integer.parseInt(number("--top-k", 5));
    return (row, line) -> {
      float[] query = embedder.embed(row[0], prompt);
      List<Object> nearest = new ArrayList<>();
      for (int index : SentenceEmbedder.search(query, vectors, most)) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("line", numbers.get(index));
        found.put("text", documents.get(numbers.get(index))[0]);
        found.put("similarity", rounded(SentenceEmbedder.cosine(query, vectors.get(index))));
        nearest.add(found);
      }
      line.put("nearest", nearest);
    };
  }

  private String number(String flag, int otherwise) {
    return flags.getOrDefault(flag, Integer.toString(otherwise));
  }

  /**
   * Returns the text and the second text, or null, by the number of their line; blank lines have none.
   *
   * @param areJson whether lines are JSON objects; null: the first line that is not blank tells
   */
  private static Map<Integer, String[]> texts(InputStream input, String source, Boolean areJson) throws IOException {
    Map<Integer, String[]> texts = new LinkedHashMap<>();
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8.newDecoder()))) {
      Boolean isJson = areJson;
      int number = 0;
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        number++;
        if (line.isBlank()) {
          continue;
        }
        isJson = isJson == null ? Boolean.valueOf(line.stripLeading().startsWith("{")) : isJson;
        texts.put(number, isJson ? row(line, source + ": line " + number) : new String[] {line, null});
      }
    } catch (CharacterCodingException error) {
      throw new UserError(source + " must be UTF-8 text; it is not");
    }
    return texts;
  }

  private static String[] row(String line, String where) {
    try {
      Object row = Json.parse(line);
      if (row instanceof Map && ((Map<?, ?>) row).get("text") instanceof String) {
        Object pair = ((Map<?, ?>) row).get("pair");
        if (pair != null && !(pair instanceof String)) {
          throw new UserError(where + ": \"pair\" must be a string");
        }
        return new String[] {(String) ((Map<?, ?>) row).get("text"), (String) pair};
      }
    } catch (JsonError error) {
      throw new UserError(where + " " + error.getMessage());
    }
    throw new UserError(where + " must be a JSON object with a string \"text\"; it is not");
  }

  private static double[] doubles(float[] values) {
    double[] doubles = new double[values.length];
    for (int i = 0; i < values.length; i++) {
      doubles[i] = values[i];
    }
    return doubles;
  }

  private static double rounded(double value) {
    return Math.rint(value * 1e6) / 1e6;
  }
}
