package org.pocketbert.bundle;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

/** Tests on handmade bundles; tests/android/test_java_heads.py compares answers of real ones with Python's. */
public class SeveralHeadsTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private static Map<String, Object> head(String kind, String name, String... labels) {
    return BundleFolder.object("kind", kind, "name", name, "labels", Arrays.asList(labels));
  }

  /** A bundle with an intent, the tags of words, and a score. */
  private BundleFolder folder(Object... heads) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    Map<String, Object> task = BundleFolder.object("kind", "several", "name", "", "labels", new ArrayList<>());
    task.put("tasks", Arrays.asList(heads));
    folder.description.put("task", task);
    folder.part("files").remove("labels.txt");
    folder.answers.clear();
    List<Object> outputs = new ArrayList<>();
    Map<String, int[]> shapes = new LinkedHashMap<>();
    shapes.put("mood_logits", new int[] {1, 2});
    shapes.put("slots_token_logits", new int[] {1, 4, 3});
    shapes.put("stars_logits", new int[] {1});
    for (Map.Entry<String, int[]> shape : shapes.entrySet()) {
      outputs.add(BundleFolder.object("name", shape.getKey(), "dtype", "float32"));
      int count = Arrays.stream(shape.getValue()).reduce(1, (x, y) -> x * y);
      for (String kind : new String[] {"outputs", "exported_outputs"}) {
        folder.answers.put("0/" + kind + "/" + shape.getKey(), new BundleFolder.Answer(shape.getValue(), new float[count]));
      }
    }
    folder.description.put("outputs", outputs);
    folder.write();
    return folder;
  }

  private BundleFolder folder() throws IOException {
    return folder(
        head("classification", "mood", "bad", "good"),
        head("token_classification", "slots", "O", "B-A", "I-A"),
        head("regression", "stars"));
  }

  @Test
  public void eachHeadAnswers() throws IOException {
    Bundle bundle = Bundle.open(folder().path);
    Network network =
        inputs -> {
          Map<String, float[]> outputs = new LinkedHashMap<>();
          outputs.put("mood_logits", new float[] {0, 1});
          // [CLS] good bad [SEP], then padding.
          float[] tags = new float[3 * inputs.length()];
          tags[3 + 1] = 2;
          tags[6 + 2] = 2;
          outputs.put("slots_token_logits", tags);
          outputs.put("stars_logits", new float[] {2.5f});
          return outputs;
        };
    Map<String, HeadAnswer> answers = new SeveralHeads(bundle, network).answer("good bad");
    assertEquals(Arrays.asList("mood", "slots", "stars"), new ArrayList<>(answers.keySet()));
    assertEquals("good", answers.get("mood").classification.label);
    assertEquals(1, answers.get("slots").spans.size());
    assertEquals("good bad", answers.get("slots").spans.get(0).text);
    assertEquals(2.5, answers.get("stars").score, 0);
  }

  @Test
  public void wordsBehindTheEndHaveNoTag() throws IOException {
    Bundle bundle = Bundle.open(folder().path);
    Network network =
        inputs -> {
          assertEquals(7, inputs.length());
          Map<String, float[]> outputs = new LinkedHashMap<>();
          outputs.put("mood_logits", new float[] {0, 1});
          float[] tags = new float[3 * 7];
          for (int token = 0; token < 7; token++) {
            tags[3 * token + 1] = 2;
          }
          outputs.put("slots_token_logits", tags);
          outputs.put("stars_logits", new float[] {0});
          return outputs;
        };
    // Five of seven words fit between [CLS] and [SEP].
    Map<String, HeadAnswer> answers = new SeveralHeads(bundle, network).answer("good bad good bad good bad good");
    assertEquals(5, answers.get("slots").spans.size());
  }

  @Test
  public void wrongHeadsAreRefused() throws IOException {
    Map<String, Object> slots = head("token_classification", "slots", "O", "B-A", "I-A");
    Map<String, Object> stars = head("regression", "stars");
    Object[][] wrong = {
      {head("classification", "mo_od", "bad", "good"), slots, stars},
      {head("classification", "slots", "bad", "good"), slots, stars},
      {head("classification", "mood", "bad"), slots, stars},
      {head("classification", "mood", "bad", "fair", "good"), slots, stars},
    };
    String[] reasons = {"letters and digits", "must be unique", "must be 2 or more", "must have the shape [1, 3]"};
    for (int i = 0; i < wrong.length; i++) {
      BundleFolder folder = folder(wrong[i]);
      String message = assertThrows(UserError.class, () -> Bundle.open(folder.path).goldens()).getMessage();
      assertTrue(message, message.contains(reasons[i]));
    }
  }

  @Test
  public void oneHeadIsRefused() throws IOException {
    BundleFolder plain = new BundleFolder(temporary.newFolder().toPath());
    Bundle bundle = Bundle.open(plain.path);
    assertThrows(UserError.class, () -> new SeveralHeads(bundle, inputs -> new LinkedHashMap<>()));
  }
}
