package org.pocketbert.bundle;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.pocketbert.json.Json;

/**
 * Encodes texts for tests in Python: {@code EmbeddingInputsMain BUNDLE INPUT OUTPUT [PROMPT]}.
 *
 * <p>A line of the input is a text as JSON. A line of the output has its ids and mask.
 */
public final class EmbeddingInputsMain {
  private EmbeddingInputsMain() {}

  public static void main(String[] arguments) throws IOException {
    Bundle bundle = Bundle.open(Paths.get(arguments[0]));
    SentenceEmbedder embedder = new SentenceEmbedder(bundle, inputs -> Collections.emptyMap());
    List<String> answers = new ArrayList<>();
    for (String line : Files.readAllLines(Paths.get(arguments[1]), StandardCharsets.UTF_8)) {
      String prompt = arguments.length > 3 ? arguments[3] : null;
      int[][] inputs = new int[2][];
      inputs[0] = embedder.inputs((String) Json.parse(line), prompt).byName().get(Bundle.WORD_IDS);
      inputs[1] = embedder.inputs((String) Json.parse(line), prompt).byName().get(Bundle.MASK);
      answers.add(Arrays.deepToString(inputs));
    }
    Files.write(Paths.get(arguments[2]), answers, StandardCharsets.UTF_8);
  }
}
