package org.pocketbert.bundle;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;

/** Tests on handmade bundles; tests/android/test_java_answers.py compares answers of real ones with Python's. */
public class QuestionAnswererTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private boolean stripAccents = true;

  /** Its logits of a token are the token's entry, with larger starts in the first window; all others are 0. */
  private static final class FakeNetwork implements Network {
    final Map<Integer, float[]> logits = new HashMap<>();
    final List<int[]> ids = new ArrayList<>();
    float inFirstWindow;

    @Override
    public Map<String, float[]> run(ModelInputs inputs) {
      ids.add(inputs.wordIds);
      Map<String, float[]> outputs = new HashMap<>();
      outputs.put("start_logits", new float[inputs.length()]);
      outputs.put("end_logits", new float[inputs.length()]);
      for (int i = 0; i < inputs.length(); i++) {
        float[] row = logits.getOrDefault(inputs.wordIds[i], new float[2]);
        float more = ids.size() == 1 && row[0] > 0 ? inFirstWindow : 0;
        outputs.get("start_logits")[i] = row[0] + more;
        outputs.get("end_logits")[i] = row[1];
      }
      return outputs;
    }
  }

  /** A bundle with the lengths 4 and 7 or others; good is 5, bad 6, [CLS] 2 and [SEP] 3. */
  private Bundle bundle(Double nullThreshold, int... lengths) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    Map<String, Object> task = BundleFolder.object("kind", "span", "name", "", "labels", new ArrayList<>());
    if (nullThreshold != null) {
      task.put("null_threshold", nullThreshold);
    }
    folder.description.put("task", task);
    folder.part("files").remove("labels.txt");
    List<Object> outputs = new ArrayList<>();
    folder.answers.clear();
    for (String output : new String[] {"start_logits", "end_logits"}) {
      outputs.add(BundleFolder.object("name", output, "dtype", "float32"));
      folder.answers.put("0/outputs/" + output, new BundleFolder.Answer(new int[] {1, 4}, 0, 0, 0, 0));
      folder.answers.put("0/exported_outputs/" + output, new BundleFolder.Answer(new int[] {1, 4}, 0, 0, 0, 0));
    }
    folder.description.put("outputs", outputs);
    List<Object> signatures = new ArrayList<>();
    for (int length : lengths) {
      signatures.add(BundleFolder.object("name", "length_" + length, "length", length));
    }
    folder.description.put("signatures", signatures);
    folder.part("tokenizer").put("strip_accents", stripAccents);
    folder.write();
    return Bundle.open(folder.path);
  }

  @Test
  public void theBestSpanIsTheAnswer() throws IOException {
    FakeNetwork network = new FakeNetwork();
    network.logits.put(5, new float[] {1, 3});
    network.logits.put(6, new float[] {2, 1});
    Answer answer = new QuestionAnswerer(bundle(null, 4, 7), network).answer("good", "x bad good");
    // bad to good: 2 + 3.
    assertEquals("bad good", answer.text);
    assertEquals(2, answer.start);
    assertEquals(10, answer.end);
    assertEquals(5, answer.score, 0);
    assertArrayEquals(new int[] {2, 5, 3, 0, 6, 5, 3}, network.ids.get(0));
    List<String> texts = new ArrayList<>();
    double sum = 0;
    for (Answer one : answer.best) {
      texts.add(one.text);
      sum += one.probability;
    }
    // 5; 1 + 3; 2 + 1 and 0 + 3, the earlier one first; 0 + 1; 0 + 0.
    assertEquals(Arrays.asList("bad good", "good", "x bad good", "bad", "x bad", "x"), texts);
    assertEquals(1, sum, 1e-12);
    double all = Math.exp(5) + Math.exp(4) + 2 * Math.exp(3) + Math.exp(1) + 1;
    assertEquals(Math.exp(5) / all, answer.probability, 1e-12);
  }

  @Test
  public void equalTextsCountOnce() throws IOException {
    FakeNetwork network = new FakeNetwork();
    network.logits.put(5, new float[] {1, 3});
    Answer answer = new QuestionAnswerer(bundle(null, 4, 7), network).answer("", "good good");
    assertEquals("good good", answer.best.get(1).text);
    assertEquals(2, answer.best.size());
    assertEquals(0, answer.start);
  }

  @Test
  public void longParagraphsHaveWindows() throws IOException {
    FakeNetwork network = new FakeNetwork();
    network.logits.put(6, new float[] {4, 4});
    // Seven tokens: [CLS], [SEP], [SEP] and four of the paragraph, two apart.
    Answer answer = new QuestionAnswerer(bundle(null, 4, 7), network).answer("", "good good good good good bad good");
    assertEquals(3, network.ids.size());
    assertArrayEquals(new int[] {2, 3, 5, 5, 5, 5, 3}, network.ids.get(0));
    assertArrayEquals(new int[] {2, 3, 5, 5, 5, 6, 3}, network.ids.get(1));
    // The last window is shorter.
    assertArrayEquals(new int[] {2, 3, 5, 6, 5, 3, 1}, network.ids.get(2));
    assertEquals("bad", answer.text);
    assertEquals(25, answer.start);
    assertEquals(28, answer.end);
  }

  @Test
  public void tokensCountWhereTheyHaveMostContext() throws IOException {
    FakeNetwork network = new FakeNetwork();
    network.logits.put(6, new float[] {4, 4});
    network.inFirstWindow = 5;
    // The first window ends with bad; the second one has tokens on both sides.
    Answer answer = new QuestionAnswerer(bundle(null, 4, 7), network).answer("", "good good good bad good good");
    assertEquals("bad", answer.text);
    assertEquals(8, answer.score, 0);
  }

  @Test
  public void longQuestionsAreCut() throws IOException {
    FakeNetwork network = new FakeNetwork();
    // Of seven tokens, three are special and two are for the paragraph.
    new QuestionAnswerer(bundle(null, 4, 7), network).answer("good good good", "bad bad bad");
    assertArrayEquals(new int[] {2, 5, 5, 3, 6, 6, 3}, network.ids.get(0));
  }

  @Test
  public void questionsMayHaveNoAnswer() throws IOException {
    FakeNetwork network = new FakeNetwork();
    network.logits.put(2, new float[] {2, 1.5f});
    network.logits.put(5, new float[] {1, 2});
    // The empty answer has 3.5, good has 3.
    Answer empty = new QuestionAnswerer(bundle(0.25, 4, 7), network).answer("", "good");
    assertEquals("", empty.text);
    assertEquals(-1, empty.start);
    assertEquals(-1, empty.end);
    assertEquals(3.5, empty.score, 0);
    assertEquals(1 / (1 + Math.exp(-0.5)), empty.probability, 1e-12);
    assertEquals("good", empty.best.get(0).text);
    Answer answer = new QuestionAnswerer(bundle(0.5, 4, 7), network).answer("", "good");
    assertEquals("good", answer.text);
    assertEquals(1 / (1 + Math.exp(0.5)), answer.probability, 1e-12);
    // Without a threshold, every question has an answer.
    answer = new QuestionAnswerer(bundle(null, 4, 7), network).answer("", "good");
    assertEquals("good", answer.text);
    assertEquals(1, answer.probability, 0);
    // A paragraph without tokens has one window, for the empty answer.
    assertEquals("", new QuestionAnswerer(bundle(null, 4, 7), network).answer("good", " ").text);
  }

  @Test
  public void marksStayWithTheirLetter() throws IOException {
    FakeNetwork network = new FakeNetwork();
    network.logits.put(5, new float[] {4, 4});
    Answer answer = new QuestionAnswerer(bundle(null, 4, 7), network).answer("", "\uD83D\uDE42 good\u0301 bad");
    assertEquals("good\u0301", answer.text);
    // In code points.
    assertEquals(2, answer.start);
    assertEquals(7, answer.end);
    // A cased tokenizer keeps a mark; behind an ideograph it is a token of its own. Unknown tokens are 0.
    stripAccents = false;
    network.logits.put(0, new float[] {1, 1});
    answer = new QuestionAnswerer(bundle(null, 4, 7), network).answer("", "\u6771\u0301");
    assertEquals("\u6771", answer.text);
    assertEquals("\u6771\u0301", answer.best.get(1).text);
  }

  @Test
  public void wrongCallsAreRefused() throws IOException {
    Bundle bundle = bundle(null, 4, 7);
    assertRefused(bundle, new FakeNetwork(), null, "received null");
    assertRefused(bundle, inputs -> new HashMap<>(), "good", "must return start_logits; it is missing");
    Network shorter =
        inputs -> {
          Map<String, float[]> outputs = new HashMap<>();
          outputs.put("start_logits", new float[3]);
          outputs.put("end_logits", new float[3]);
          return outputs;
        };
    assertRefused(bundle, shorter, "good", "must return 7 numbers for start_logits; received 3");
    assertRefused(bundle(null, 4), new FakeNetwork(), "good", "questions need a length of at least 5; received 4");
    Bundle classes = Bundle.open(new BundleFolder(temporary.newFolder().toPath()).path);
    assertRefused(classes, new FakeNetwork(), "good", "questions need a bundle for span");
  }

  private static void assertRefused(Bundle bundle, Network network, String context, String words) {
    UserError error =
        assertThrows(UserError.class, () -> new QuestionAnswerer(bundle, network).answer("good bad", context));
    assertTrue(error.getMessage(), error.getMessage().contains(words));
  }
}
