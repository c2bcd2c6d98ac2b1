package org.pocketbert.bundle;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.json.Json;
import org.pocketbert.tokenizer.ModelInputs;

/**
 * Writes the ids that a network reads, for tests in Python: {@code InputsMain BUNDLE INPUT OUTPUT}.
 *
 * <p>A line of the input has the parts of a text in a list: text, pair, or question and paragraph. A line of the output
 * has a list of ids for each run of the network, with padding.
 */
public final class InputsMain {
  private InputsMain() {}

  /** Outputs zeros of the right size, and records its inputs. */
  private static final class Recorder implements PairNetwork {
    final List<int[]> ids = new ArrayList<>();
    private final Bundle bundle;

    Recorder(Bundle bundle) {
      this.bundle = bundle;
    }

    @Override
    public Map<String, float[]> run(ModelInputs inputs) {
      ids.add(inputs.wordIds);
      Map<String, float[]> outputs = new HashMap<>();
      int labels = Math.max(1, bundle.labels().size());
      outputs.put("logits", new float[labels]);
      outputs.put("embedding", new float[2]);
      outputs.put("token_logits", new float[inputs.length() * labels]);
      outputs.put("start_logits", new float[inputs.length()]);
      outputs.put("end_logits", new float[inputs.length()]);
      for (TaskHead head : bundle.task().heads) {
        int count = Math.max(1, head.labels.size());
        outputs.put(head.name + "_logits", new float[count]);
        outputs.put(head.name + "_token_logits", new float[inputs.length() * count]);
      }
      return outputs;
    }

    @Override
    public Map<String, float[]> runHead(float[] first, float[] second) {
      return Collections.singletonMap("logits", new float[Math.max(1, bundle.pairs().labels.size())]);
    }
  }

  private static void answer(Bundle bundle, Network network, String text, String pair) {
    switch (bundle.answerKind()) {
      case "span":
        new QuestionAnswerer(bundle, network).answer(text, pair);
        break;
      case "regression":
        new Scorer(bundle, network).score(text, pair);
        break;
      case "embedding":
        new SentenceEmbedder(bundle, network).embed(text);
        break;
      case "token_classification":
        new SpanFinder(bundle, network).find(text);
        break;
      case "several":
        new SeveralHeads(bundle, network).answer(text);
        break;
      default:
        new TextClassifier(bundle, network).classify(text, pair);
    }
  }

  public static void main(String[] arguments) throws IOException {
    Bundle bundle = Bundle.open(Paths.get(arguments[0]));
    Path input = Paths.get(arguments[1]);
    List<String> lines = new ArrayList<>();
    for (String line : Files.readAllLines(input, StandardCharsets.UTF_8)) {
      List<?> parts = (List<?>) Json.parse(line);
      Recorder recorder = new Recorder(bundle);
      answer(bundle, recorder, (String) parts.get(0), parts.size() > 1 ? (String) parts.get(1) : null);
      lines.add(Arrays.deepToString(recorder.ids.toArray()));
    }
    Files.write(Paths.get(arguments[2]), lines, StandardCharsets.UTF_8);
  }
}
