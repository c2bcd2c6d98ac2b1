package org.pocketbert.bundle;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.function.ThrowingRunnable;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;

/** Tests on handmade bundles; tests/android/test_java_answers.py compares answers of real ones with Python's. */
public class ScorerTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  /** Its vectors are the id behind [CLS]; its head subtracts them. */
  private static final class Difference implements PairNetwork {
    @Override
    public Map<String, float[]> run(ModelInputs inputs) {
      return Collections.singletonMap("embedding", new float[] {inputs.wordIds[1]});
    }

    @Override
    public Map<String, float[]> runHead(float[] first, float[] second) {
      return Collections.singletonMap("logits", new float[] {first[0] - second[0]});
    }
  }

  private Bundle bundle(String kind) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    folder.part("task").put("kind", kind);
    if (kind.equals("regression")) {
      folder.part("task").put("labels", new ArrayList<>());
      folder.part("files").remove("labels.txt");
      for (String output : new String[] {"outputs", "exported_outputs"}) {
        folder.answers.put("0/" + output + "/logits", new BundleFolder.Answer(new int[] {1}, 0.5f));
      }
    }
    folder.write();
    return Bundle.open(folder.path);
  }

  private Bundle separate(String kind, String... labels) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    folder.pair(BundleFolder.object("kind", kind, "name", "same", "labels", Arrays.asList(labels)));
    folder.write();
    return Bundle.open(folder.path);
  }

  @Test
  public void textsAndPairsHaveScores() throws IOException {
    List<int[]> ids = new ArrayList<>();
    Network network =
        inputs -> {
          ids.add(inputs.wordIds);
          return Collections.singletonMap("logits", new float[] {-2.5f});
        };
    Scorer scorer = new Scorer(bundle("regression"), network);
    assertEquals(-2.5, scorer.score("good"), 0);
    assertEquals(-2.5, scorer.score("good", "bad"), 0);
    assertArrayEquals(new int[] {2, 5, 3, 1}, ids.get(0));
    assertArrayEquals(new int[] {2, 5, 3, 6, 3, 1, 1}, ids.get(1));
  }

  @Test
  public void pairsReadApartHaveScores() throws IOException {
    // good is 5, bad 6.
    assertEquals(-1, new Scorer(separate("regression"), new Difference()).score("good", "bad"), 0);
    TextClassifier classifier = new TextClassifier(separate("multi_label", "less"), new Difference());
    assertEquals(Arrays.asList(), classifier.classify("good", "bad").labels);
    assertEquals(Arrays.asList("less"), classifier.classify("bad", "good").labels);
  }

  @Test
  public void wrongCallsAreRefused() throws IOException {
    Bundle pairs = separate("regression");
    assertRefused("pass the second text", () -> new Scorer(pairs, new Difference()).score("good"));
    assertRefused("both of its files", () -> new Scorer(pairs, inputs -> Collections.emptyMap()));
    assertRefused("scores need a bundle for regression", () -> new Scorer(bundle("classification"), new Difference()));
    assertRefused("is for multi_label", () -> new Scorer(separate("multi_label", "a"), new Difference()));
    Bundle single = bundle("regression");
    assertRefused("received 2 numbers", () -> score(single, "good", 1, 2));
    assertRefused("finite", () -> score(single, "good", Float.NaN));
    assertRefused("received null", () -> score(single, null, 1));
  }

  private static double score(Bundle bundle, String text, float... logits) {
    return new Scorer(bundle, inputs -> Collections.singletonMap("logits", logits)).score(text);
  }

  private static void assertRefused(String words, ThrowingRunnable call) {
    String message = assertThrows(UserError.class, call).getMessage();
    assertTrue(message, message.contains(words));
  }
}
