package org.pocketbert.bundle;

import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

public class GoldensTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private BundleFolder folder() throws IOException {
    return new BundleFolder(temporary.getRoot().toPath().resolve("bundle"));
  }

  private static void assertRefused(Path path, String... parts) {
    assertParts(assertThrows(UserError.class, () -> Bundle.open(path).goldens()).getMessage(), parts);
  }

  private static void assertParts(String message, String... parts) {
    for (String part : parts) {
      assertTrue(message, message.contains(part));
    }
    assertFalse(message, message.contains("\n"));
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> window(BundleFolder folder) {
    return ((List<Map<String, Object>>) folder.lines.get(0).get("windows")).get(0);
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> answer(BundleFolder folder, int line) {
    return (Map<String, Object>) folder.lines.get(line).get("answer");
  }

  private static void check(Path path) {
    Bundle.open(path).check(inputs -> Collections.singletonMap("logits", new float[] {-2, 0.5f}));
  }

  private static void assertCheckFails(Path path, String... parts) {
    assertParts(assertThrows(UserError.class, () -> check(path)).getMessage(), parts);
  }

  @Test
  public void checkComparesGoldenAnswers() throws IOException {
    BundleFolder folder = folder();
    check(folder.path);
    answer(folder, 0).put("label", "bad");
    folder.write();
    assertCheckFails(folder.path, "line 1 ('Good') must have the label 'bad'; the bundle answers 'good'");
    answer(folder, 0).put("label", "good");
    answer(folder, 0).put("probabilities", BundleFolder.object("bad", 0.077, "good", 0.924142));
    folder.write();
    assertCheckFails(folder.path, "must have the probabilities.bad 0.0770000, up to 0.0010; the bundle answers 0.0758582");
    answer(folder, 0).put("probabilities", BundleFolder.object("bad", 0.0767, "good", 0.924142));
    folder.write();
    check(folder.path);
    answer(folder, 0).remove("label");
    folder.write();
    assertCheckFails(folder.path, "must have an answer with [probabilities]; the bundle answers with [label, prob");
  }

  @Test
  public void nearTiesMayHaveAnotherLabel() throws IOException {
    BundleFolder folder = folder();
    answer(folder, 0).put("label", "bad");
    answer(folder, 0).put("probabilities", BundleFolder.object("bad", 0.5, "good", 0.5));
    folder.write();
    Network even = inputs -> Collections.singletonMap("logits", new float[] {0.2f, 0.2035f});
    Bundle.open(folder.path).check(even);
    Network uneven = inputs -> Collections.singletonMap("logits", new float[] {0.2f, 0.2045f});
    assertThrows(UserError.class, () -> Bundle.open(folder.path).check(uneven));
  }

  @Test
  public void checkComparesOffsetsOfAllLines() throws IOException {
    BundleFolder folder = folder();
    folder.lines.add(BundleFolder.golden(5));
    folder.write();
    check(folder.path);
    window(folder).put("offsets", Arrays.asList(Arrays.asList(0, 0), Arrays.asList(0, 3), Arrays.asList(0, 0)));
    folder.write();
    assertCheckFails(folder.path, "answers.jsonl: line 1 ('Good') must have the tokenizer's offsets; it has others");
    Collections.swap(folder.lines, 0, 1);
    folder.lines.get(0).put("windows", folder.lines.get(1).get("windows"));
    folder.write();
    assertCheckFails(folder.path, "line 1 ('Good Good Good') must have the tokenizer's ids", "line 2 ('Good')");
  }

  @Test
  public void damagedGoldenAnswersAreRefused() throws IOException {
    String[][] wrong = {
      {"{\"text\":\"a\"", "answers.jsonl must end with a line break; its last line is cut"},
      {"{\n", "answers.jsonl: line 1 expected a key in quotes"},
      {"{\"text\":\"a\",\"windows\":[],\"answer\":null}\n", "answers.jsonl: line 1.windows must not be empty"},
      {"{\"text\":\"a\",\"windows\":[{\"ids\":[2],\"offsets\":[[0]]}],\"answer\":null}\n", "a start and an end"},
      {"{\"windows\":[{\"ids\":[2],\"offsets\":[[0,0]]}],\"answer\":{\"score\":NaN}}\n", "line 1 expected"},
      {String.join("", Collections.nCopies(51, "{}\n")), "must have 1 to 50 lines and at most 200000 bytes; it has 51"},
    };
    for (String[] content : wrong) {
      BundleFolder folder = folder();
      Map<String, Object> entry = folder.file("answers.jsonl", content[0]);
      folder.part("files").put("answers.jsonl", entry);
      folder.part("answers").put("sha256", entry.get("sha256"));
      folder.describe();
      Bundle.open(folder.path);
      assertRefused(folder.path, content[1]);
    }
    BundleFolder missing = folder();
    Files.delete(missing.path.resolve("answers.jsonl"));
    assertRefused(missing.path, "answers.jsonl must be there; it is missing");
    missing.part("files").remove("answers.jsonl");
    missing.describe();
    assertRefused(missing.path, "answers.jsonl must be listed");
  }

  @Test
  public void idsBeyondTheVocabularyAreRefused() throws IOException {
    BundleFolder folder = folder();
    window(folder).put("ids", Arrays.asList(2, 7, 3));
    folder.write();
    assertRefused(folder.path, "answers.jsonl: line 1.windows[0].ids must be whole numbers below 7");
    folder.part("tokenizer").put("vocab_size", 9);
    folder.write();
    assertRefused(folder.path, "vocab.txt must have 9 lines");
  }
}
