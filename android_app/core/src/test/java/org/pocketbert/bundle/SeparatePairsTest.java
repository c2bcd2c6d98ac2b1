package org.pocketbert.bundle;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.Benchmark;
import org.pocketbert.engine.BundleEngines;
import org.pocketbert.tokenizer.ModelInputs;

/** Tests on handmade bundles; tests/android/test_java_pairs.py compares answers of real ones with Python's. */
public class SeparatePairsTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  /** Its vectors are the first two ids behind [CLS]; its head answers what it is told to. */
  private static final class FakeNetwork implements PairNetwork {
    final float[] logits;
    final List<Integer> lengths = new ArrayList<>();
    float[][] seen;

    FakeNetwork(float... logits) {
      this.logits = logits;
    }

    @Override
    public Map<String, float[]> run(ModelInputs inputs) {
      lengths.add(inputs.length());
      return Collections.singletonMap("embedding", new float[] {inputs.wordIds[1], inputs.wordIds[2]});
    }

    @Override
    public Map<String, float[]> runHead(float[] first, float[] second) {
      seen = new float[][] {first, second};
      return Collections.singletonMap("logits", logits);
    }
  }

  private static Map<String, Object> task(String kind, String... labels) {
    return BundleFolder.object("kind", kind, "name", "same", "labels", Arrays.asList(labels));
  }

  private BundleFolder folder(Map<String, Object> task) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    folder.pair(task);
    folder.write();
    return folder;
  }

  private HeadAnswer predict(Map<String, Object> task, float... logits) throws IOException {
    return new SeparatePairs(Bundle.open(folder(task).path), new FakeNetwork(logits)).predict("good", "bad");
  }

  @Test
  public void eachTextHasARowOfItsOwn() throws IOException {
    FakeNetwork network = new FakeNetwork(0, 1);
    Bundle bundle = Bundle.open(folder(task("classification", "other", "same")).path);
    SeparatePairs pairs = new SeparatePairs(bundle, network);
    // good is 5, bad 6 and [SEP] 3; two words need the length 4, four words 7.
    assertArrayEquals(new float[] {5, 6}, pairs.vector("good bad"), 0);
    assertEquals("same", pairs.predict("good", "bad good bad good").classification.label);
    assertArrayEquals(new float[][] {{5, 3}, {6, 5}}, network.seen);
    assertEquals(Arrays.asList(4, 4, 7), network.lengths);
    assertTrue(bundle.hasPairs());
    assertEquals("not a head", StandardCharsets.UTF_8.decode(bundle.pairHead()).toString());
    assertTrue(Benchmark.notes(bundle).get(0).contains("one text in model.tflite"));
  }

  @Test
  public void eachKindHasItsAnswer() throws IOException {
    HeadAnswer answer = predict(task("classification", "other", "same"), 1, 0);
    assertEquals("other", answer.classification.label);
    // 1 / (1 + exp(-1)).
    assertEquals(0.7310585786300049, answer.classification.probabilities.get("other"), 1e-12);
    assertNull(answer.score);
    answer = predict(task("multi_label", "a", "b", "c"), 1, -1, 0);
    assertTrue(answer.severalLabels);
    assertEquals(Arrays.asList("a", "c"), answer.classification.labels);
    answer = predict(task("regression"), 2.25f);
    assertEquals(2.25, answer.score, 0);
    assertNull(answer.classification);
  }

  @Test
  public void decisionsApply() throws IOException {
    Map<String, Object> task = task("classification", "other", "same");
    task.put("decisions", BundleFolder.object("thresholds", null, "reject_below", 0.75));
    assertNull(predict(task, 1, 0).classification.label);
    assertEquals("other", predict(task, 1.5f, 0).classification.label);
    task.put("decisions", BundleFolder.object("thresholds", Arrays.asList(0.75, 0.25), "reject_below", null));
    assertEquals("same", predict(task, 1, 0).classification.label);
    task.put("decisions", BundleFolder.object("thresholds", Arrays.asList(0.5), "reject_below", null));
    UserError error = assertThrows(UserError.class, () -> predict(task, 1, 0));
    assertTrue(error.getMessage(), error.getMessage().contains("$.pairs.task.decisions.thresholds must hold"));
  }

  @Test
  public void wrongAnswersAreRefused() throws IOException {
    assertThrows(UserError.class, () -> predict(task("classification", "a", "b"), 1, 2, 3));
    assertThrows(UserError.class, () -> predict(task("classification", "a", "b"), 1, Float.NaN));
    assertThrows(UserError.class, () -> predict(task("regression"), 1, 2));
    Bundle bundle = Bundle.open(folder(task("regression")).path);
    SeparatePairs pairs = new SeparatePairs(bundle, new FakeNetwork(1));
    String message = assertThrows(UserError.class, () -> pairs.answer(new float[2], new float[3])).getMessage();
    assertEquals("the vectors of a pair must have one size; received 2 and 3", message);
  }

  @Test
  public void wrongBundlesAreRefused() throws IOException {
    BundleFolder plain = new BundleFolder(temporary.newFolder().toPath());
    Bundle single = Bundle.open(plain.path);
    assertFalse(single.hasPairs());
    assertTrue(Benchmark.notes(single).isEmpty());
    String message = assertThrows(UserError.class, () -> new SeparatePairs(single, new FakeNetwork(1))).getMessage();
    assertTrue(message, message.startsWith("separate pairs need a bundle for them;"));
    try (BundleEngines engines = new BundleEngines(single, 1)) {
      assertThrows(UserError.class, () -> engines.runHead(new float[2], new float[2]));
    }
    plain.description.put("pairs", BundleFolder.object("task", task("regression")));
    plain.write();
    assertRefused(plain, "$.task.kind must be embedding beside $.pairs");
    assertRefused(folder(task("token_classification", "O", "B-A")), "$.pairs.task.kind must be one of classification");
    assertRefused(folder(task("classification", "a")), "$.pairs.task.labels must be 2 or more");
    BundleFolder unlisted = folder(task("regression"));
    unlisted.part("files").remove("head.tflite");
    unlisted.write();
    assertRefused(unlisted, "head.tflite must be listed among the files in bundle.json");
    BundleFolder headless = folder(task("regression"));
    Files.delete(headless.path.resolve("head.tflite"));
    assertRefused(headless, "head.tflite must be there; it is missing");
  }

  private static void assertRefused(BundleFolder folder, String reason) {
    String message = assertThrows(UserError.class, () -> Bundle.open(folder.path)).getMessage();
    assertTrue(message, message.contains(reason));
  }
}
