package org.pocketbert.bundle;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

/** Tests on handmade bundles; tests/android/test_java_labels.py compares answers of real ones with Python's. */
public class TextClassifierTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  /** A bundle with the labels bad and good. */
  private Bundle bundle(String kind, Object thresholds, Object rejectBelow) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    folder.part("task").put("kind", kind);
    if (thresholds != null || rejectBelow != null) {
      Map<String, Object> decisions = new LinkedHashMap<>();
      decisions.put("thresholds", thresholds);
      decisions.put("reject_below", rejectBelow);
      folder.part("task").put("decisions", decisions);
    }
    folder.write();
    return Bundle.open(folder.path);
  }

  private static Classification classify(Bundle bundle, float... logits) {
    return new TextClassifier(bundle, inputs -> Collections.singletonMap("logits", logits)).classify("good");
  }

  @Test
  public void theLargestLogitIsTheClass() throws IOException {
    Bundle plain = bundle("classification", null, null);
    Classification found = classify(plain, 1, 0);
    assertEquals("bad", found.label);
    assertEquals(Arrays.asList("bad"), found.labels);
    // 1 / (1 + exp(-1)).
    assertEquals(0.7310585786300049, found.probabilities.get("bad"), 1e-12);
    assertEquals(Arrays.asList("bad", "good"), Arrays.asList(found.probabilities.keySet().toArray()));
    // The first one of equal ones, as in Python.
    assertEquals("bad", classify(plain, 0.5f, 0.5f).label);
  }

  @Test
  public void twoClassesHaveAThreshold() throws IOException {
    Bundle eager = bundle("classification", Arrays.asList(0.75, 0.25), null);
    // Probabilities of good: 0.27 and 0.18.
    assertEquals("good", classify(eager, 1, 0).label);
    assertEquals("bad", classify(eager, 1.5f, 0).label);
  }

  @Test
  public void uncertainTextsHaveNoClass() throws IOException {
    Bundle cautious = bundle("classification", null, 0.75);
    Classification found = classify(cautious, 1, 0);
    assertNull(found.label);
    assertTrue(found.labels.isEmpty());
    assertEquals(0.7310585786300049, found.probabilities.get("bad"), 1e-12);
    assertEquals("bad", classify(cautious, 1.5f, 0).label);
  }

  @Test
  public void eachLabelHasItsThreshold() throws IOException {
    assertEquals(Arrays.asList("good"), classify(bundle("multi_label", null, null), -0.5f, 0).labels);
    Bundle eager = bundle("multi_label", Arrays.asList(0.3, 0.6), null);
    // Probabilities 0.38 and 0.5.
    Classification found = classify(eager, -0.5f, 0);
    assertEquals(Arrays.asList("bad"), found.labels);
    assertNull(found.label);
    assertEquals(0.5, found.probabilities.get("good"), 1e-12);
  }

  @Test
  public void pairsAreEncodedTogether() throws IOException {
    Bundle plain = bundle("classification", null, null);
    int[][] seen = new int[1][];
    Network network =
        inputs -> {
          seen[0] = inputs.wordIds;
          return Collections.singletonMap("logits", new float[] {0, 1});
        };
    assertEquals("good", new TextClassifier(plain, network).classify("good", "bad").label);
    assertArrayEquals(new int[] {2, 5, 3, 6, 3, 1, 1}, seen[0]);
  }

  @Test
  public void wrongDecisionsAreRefused() throws IOException {
    List<Object[]> wrong =
        Arrays.asList(
            new Object[] {"classification", Arrays.asList(0.5, 0.6), null, "sum to 1"},
            new Object[] {"classification", Arrays.asList(0.5), null, "for each of 2 labels"},
            new Object[] {"classification", Arrays.asList(0, 1), null, "between 0 and 1"},
            new Object[] {"classification", Arrays.asList("a", 1), null, "must hold numbers"},
            new Object[] {"classification", Arrays.asList(0.5, 0.5), 0.5, "null for the other"},
            new Object[] {"classification", null, 1.5, "must lie in [0, 1]"},
            new Object[] {"classification", null, "a", "must be a number"},
            new Object[] {"multi_label", null, 0.5, "for one of several classes"},
            new Object[] {"token_classification", null, 0.5, "are for classification and multi_label"});
    for (Object[] row : wrong) {
      UserError error = assertThrows(UserError.class, () -> bundle((String) row[0], row[1], row[2]));
      assertTrue(error.getMessage(), error.getMessage().contains((String) row[3]));
    }
  }

  @Test
  public void wrongNetworksAreRefused() throws IOException {
    Bundle plain = bundle("classification", null, null);
    assertThrows(UserError.class, () -> classify(plain, 1, 2, 3));
    assertThrows(UserError.class, () -> classify(plain, Float.NaN, 2));
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    folder.embed(new float[] {0.6f, 0.8f});
    folder.write();
    Bundle vectors = Bundle.open(folder.path);
    String message = assertThrows(UserError.class, () -> classify(vectors, 1, 2)).getMessage();
    assertTrue(message, message.startsWith("labels need a bundle for classification"));
  }
}
