package org.pocketbert.host;

import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.Pipeline;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Answer;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Classification;
import org.pocketbert.bundle.HeadAnswer;
import org.pocketbert.bundle.LabelledSpan;
import org.pocketbert.bundle.QuestionAnswerer;
import org.pocketbert.bundle.Scorer;
import org.pocketbert.bundle.SentenceEmbedder;
import org.pocketbert.bundle.SeparatePairs;
import org.pocketbert.bundle.SeveralHeads;
import org.pocketbert.bundle.SpanFinder;
import org.pocketbert.bundle.TextClassifier;
import org.pocketbert.json.Json;

/** Answers texts with a bundle: one answer for each text, in the JSON lines of {@code pocketbert}. */
final class Answers {
  static final String COMMAND = "answer";
  static final String HELP =
      """
      Answers texts from standard input with a bundle, one JSON object per line.

      A bundle for classes or several labels gives the labels and their probabilities, one for regression the score,
      one for token classification the spans, one for embeddings the embedding or the nearest lines of --search, and one
      with several heads the answer of each. The input has one text per line, or one JSON object with "text" per line;
      for pairs also with "pair". A bundle for separate pairs gives the answer of a line with "pair", and otherwise the
      vector of the text. A bundle for questions reads JSON objects with "question" and "context", and gives the answer.

      usage: java -jar pocketbert-host.jar answer [flags] BUNDLE < texts.txt
        BUNDLE                     a folder, or a zip file of it
        --n-best=3                 number of best answers to print for a question (default: none)
        --search=FILE              print the nearest lines of this file
        --top-k=5                  number of nearest lines (default: 5)
        --prompt-name=NAME         prompt of the texts (default: the model's default prompt)
        --search-prompt-name=NAME  prompt of the lines of --search (default: the model's default prompt)
        --threads=1                the runtime's threads (default: 1)
        --help                     show this text
      """;

  private static final List<String> OF_EMBEDDINGS =
      List.of("--search", "--top-k", "--prompt-name", "--search-prompt-name");
  private static final List<String> OTHERS = List.of("--threads", "--n-best");

  private final Map<String, String> flags = new LinkedHashMap<>();
  private final List<String> bundles = new ArrayList<>();

  private Answers(List<String> words) {
    List<String> problems = new ArrayList<>();
    for (String word : words) {
      String[] parts = word.split("=", 2);
      boolean known = OF_EMBEDDINGS.contains(parts[0]) || OTHERS.contains(parts[0]);
      if (known && parts.length == 2 && !parts[1].isEmpty()) {
        flags.put(parts[0], parts[1]);
      } else if (word.startsWith("-")) {
        String names = String.join("=, ", OF_EMBEDDINGS) + "=, " + String.join("=, ", OTHERS);
        problems.add("a flag must be one of " + names + "=, --help; received " + word);
      } else {
        bundles.add(word);
      }
    }
    for (String name : List.of("--threads", "--top-k", "--n-best")) {
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
    try (Pipeline pipeline = new Pipeline(bundle, Integer.parseInt(number("--threads", 1)))) {
      Answerer answerer = answerer(pipeline);
      String source = "standard input";
      boolean reads = "span".equals(bundle.taskKind());
      for (Map<String, String> row : reads ? InputRows.questions(input, source) : InputRows.texts(input, source)) {
        Map<String, Object> line = new LinkedHashMap<>(row);
        answerer.answer(row, line);
        output.println(Json.write(line));
      }
    }
  }

  private interface Answerer {
    /** Adds the answer of a row to its line. */
    void answer(Map<String, String> row, Map<String, Object> line);
  }

  private Answerer answerer(Pipeline pipeline) throws IOException {
    String kind = pipeline.bundle().answerKind();
    checkFlags(pipeline.bundle());
    if (OF_EMBEDDINGS.stream().anyMatch(flags::containsKey)) {
      return embeddings(pipeline);
    }
    if (pipeline.bundle().hasPairs()) {
      return pairs(pipeline);
    }
    switch (String.valueOf(kind)) {
      case "regression":
        Scorer scorer = pipeline.scorer();
        return (row, line) -> line.put("score", scorer.score(row.get("text"), row.get("pair")));
      case "span":
        return questions(pipeline);
      case "embedding":
        return embeddings(pipeline);
      case "several":
        return heads(pipeline);
      case "token_classification":
        SpanFinder finder = pipeline.spanFinder();
        return (row, line) -> line.put("spans", described(finder.find(single(row))));
      default:
        TextClassifier classifier = pipeline.classifier();
        boolean several = "multi_label".equals(kind);
        return (row, line) -> add(classifier.classify(row.get("text"), row.get("pair")), several, line);
    }
  }

  private void checkFlags(Bundle bundle) {
    for (String flag : flags.keySet()) {
      String kind = OF_EMBEDDINGS.contains(flag) ? "embedding" : flag.equals("--n-best") ? "span" : null;
      if (kind != null && !kind.equals(bundle.taskKind())) {
        throw new UserError(
            flag + " needs a bundle for " + kind + "; " + bundle.name() + " is for " + bundle.taskKind()
                + "; leave it out");
      }
    }
  }

  /** Returns a row's text; a pair is refused. */
  private static String single(Map<String, String> row) {
    if (row.containsKey("pair")) {
      throw new UserError("inputs must be texts; received a pair, " + row + "; pass one text each");
    }
    return row.get("text");
  }

  private static void add(Classification classification, boolean several, Map<String, Object> line) {
    line.put(several ? "labels" : "label", several ? classification.labels : classification.label);
    Map<String, Object> probabilities = new LinkedHashMap<>();
    classification.probabilities.forEach((label, probability) -> probabilities.put(label, rounded(probability)));
    line.put("probabilities", probabilities);
  }

  private static Answerer heads(Pipeline pipeline) {
    SeveralHeads heads = pipeline.severalHeads();
    return (row, line) ->
        heads
            .answer(single(row))
            .forEach(
                (name, answer) -> {
                  Map<String, Object> described = new LinkedHashMap<>();
                  add(answer, described);
                  line.put(name, described);
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

  private static Answerer pairs(Pipeline pipeline) {
    SeparatePairs pairs = pipeline.separatePairs();
    return (row, line) -> {
      if (row.containsKey("pair")) {
        add(pairs.predict(row.get("text"), row.get("pair")), line);
      } else {
        line.put("embedding", doubles(pairs.vector(row.get("text"))));
      }
    };
  }

  private Answerer questions(Pipeline pipeline) {
    QuestionAnswerer answerer = pipeline.questionAnswerer();
    int most = Integer.parseInt(number("--n-best", 0));
    return (row, line) -> {
      Answer answer = answerer.answer(row.get("question"), row.get("context"));
      add(answer, line);
      if (most > 0) {
        List<Object> best = new ArrayList<>();
        for (Answer one : answer.best.subList(0, Math.min(most, answer.best.size()))) {
          Map<String, Object> described = new LinkedHashMap<>();
          add(one, described);
          best.add(described);
        }
        line.put("answers", best);
      }
    };
  }

  private static void add(Answer answer, Map<String, Object> line) {
    line.put("answer", answer.text);
    line.put("start", answer.start < 0 ? null : answer.start);
    line.put("end", answer.end < 0 ? null : answer.end);
    line.put("score", rounded(answer.score));
    line.put("probability", rounded(answer.probability));
  }

  private static List<Object> described(List<LabelledSpan> labelledSpans) {
    List<Object> spans = new ArrayList<>();
    for (LabelledSpan span : labelledSpans) {
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

  private Answerer embeddings(Pipeline pipeline) throws IOException {
    SentenceEmbedder embedder = pipeline.embedder();
    String prompt = flags.get("--prompt-name");
    String file = flags.get("--search");
    if (file == null) {
      return (row, line) -> {
        float[] vector = embedder.embed(row.get("text"), prompt);
        if (row.containsKey("pair")) {
          line.put("similarity", SentenceEmbedder.cosine(vector, embedder.embed(row.get("pair"), prompt)));
        } else {
          line.put("embedding", doubles(vector));
        }
      };
    }
    if (!Files.isRegularFile(Path.of(file))) {
      throw new UserError("--search must be a file of texts; received " + file);
    }
    Map<Integer, Map<String, String>> documents;
    try (InputStream stream = Files.newInputStream(Path.of(file))) {
      documents = InputRows.lines(stream, file);
    }
    List<Integer> numbers = new ArrayList<>(documents.keySet());
    List<float[]> vectors = new ArrayList<>();
    for (Map<String, String> document : documents.values()) {
      vectors.add(embedder.embed(document.get("text"), flags.get("--search-prompt-name")));
    }
    int most = Integer.parseInt(number("--top-k", 5));
    return (row, line) -> {
      float[] query = embedder.embed(single(row), prompt);
      List<Object> nearest = new ArrayList<>();
      for (int index : SentenceEmbedder.search(query, vectors, most)) {
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("line", numbers.get(index));
        document.put("text", documents.get(numbers.get(index)).get("text"));
        document.put("similarity", rounded(SentenceEmbedder.cosine(query, vectors.get(index))));
        nearest.add(document);
      }
      line.put("nearest", nearest);
    };
  }

  private String number(String flag, int otherwise) {
    return flags.getOrDefault(flag, Integer.toString(otherwise));
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
