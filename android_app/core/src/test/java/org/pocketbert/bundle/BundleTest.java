package org.pocketbert.bundle;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

public class BundleTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private BundleFolder folder() throws IOException {
    return new BundleFolder(temporary.getRoot().toPath().resolve("bundle"));
  }

  private static void assertRefused(Path path, String... parts) {
    String message = assertThrows(UserError.class, () -> Bundle.open(path).goldens()).getMessage();
    for (String part : parts) {
      assertTrue(message, message.contains(part));
    }
    assertFalse(message, message.contains("\n"));
  }

  @Test
  public void whatItSays() throws IOException {
    Bundle bundle = Bundle.open(folder().path);
    assertEquals("bundle", bundle.name());
    assertArrayEquals(new int[] {4, 7}, bundle.lengths());
    assertEquals("length_7", bundle.signature(7));
    assertEquals(Arrays.asList("bad", "good"), bundle.labels());
    assertEquals("not a model", StandardCharsets.UTF_8.decode(bundle.model()).toString());
    assertTrue(bundle.model().isDirect() && bundle.model().isReadOnly());
    assertThrows(UserError.class, () -> bundle.signature(5));
  }

  @Test
  public void multiLabelBundlesOpen() throws IOException {
    BundleFolder folder = folder();
    folder.part("task").put("kind", "multi_label");
    folder.write();
    assertEquals(Arrays.asList("bad", "good"), Bundle.open(folder.path).labels());
  }

  @Test
  public void goldensArePaddedToALength() throws IOException {
    Bundle bundle = Bundle.open(folder().path);
    List<Golden> goldens = bundle.goldens(7);
    assertEquals(1, goldens.size());
    assertArrayEquals(new int[] {2, 5, 3, 1, 1, 1, 1}, goldens.get(0).inputs.get("input_word_ids"));
    assertArrayEquals(new int[] {1, 1, 1, 0, 0, 0, 0}, goldens.get(0).inputs.get("input_mask"));
    assertThrows(UserError.class, () -> bundle.goldens(2));
  }

  @Test
  public void textWithOtherIdsIsRefused() throws IOException {
    BundleFolder folder = folder();
    folder.lines.set(0, with(BundleFolder.golden(), "text", "bad"));
    folder.write();
    assertRefused(folder.path, "answers.jsonl: line 1 ('bad') must have the tokenizer's ids; it has others");
  }

  @Test
  public void aChangedTokenizerIsRefused() throws IOException {
    BundleFolder shuffled = folder();
    Object file = shuffled.file("vocab.txt", "[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\nbad\ngood\n");
    shuffled.part("files").put("vocab.txt", file);
    shuffled.write();
    assertRefused(shuffled.path, "line 1 ('Good') must have the tokenizer's ids; it has others");
    BundleFolder longer = folder();
    file = longer.file("vocab.txt", "[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nugly\n");
    longer.part("files").put("vocab.txt", file);
    longer.write();
    assertRefused(longer.path, "vocab.txt must have 7 lines, the vocab_size of bundle.json; it has 8");
    BundleFolder cased = folder();
    cased.part("tokenizer").put("lowercase", false);
    cased.part("tokenizer").put("strip_accents", false);
    cased.write();
    assertRefused(cased.path, "line 1 ('Good') must have the tokenizer's ids; it has others");
    BundleFolder damaged = folder();
    damaged.part("files").put("vocab.txt", damaged.file("vocab.txt", "[UNK]\n"));
    damaged.write();
    assertRefused(damaged.path, "vocab.txt: vocabulary: it must have [PAD]");
  }

  @Test
  public void labelsThatDisagreeAreRefused() throws IOException {
    BundleFolder swapped = folder();
    swapped.part("files").put("labels.txt", swapped.file("labels.txt", "good\nbad\n"));
    swapped.write();
    assertRefused(swapped.path, "labels.txt must hold the labels of bundle.json in order, one per line");
    BundleFolder third = folder();
    third.part("task").put("labels", Arrays.asList("bad", "fair", "good"));
    third.part("files").put("labels.txt", third.file("labels.txt", "bad\nfair\ngood\n"));
    third.write();
    assertRefused(
        third.path,
        "goldens.safetensors: 0/outputs/logits must have the shape [1, 3], one number per label; it has [1, 2]");
    BundleFolder unlisted = folder();
    unlisted.part("files").remove("labels.txt");
    unlisted.write();
    assertRefused(unlisted.path, "labels.txt must be listed");
    BundleFolder surplus = folder();
    surplus.description.put("task", null);
    surplus.write();
    assertRefused(surplus.path, "labels.txt must be absent for a task without labels");
  }

  @Test
  public void multiLineLabelsAreRefused() throws IOException {
    Object[][] wrong = {
      {"bad", "go\nod"}, {"bad", ""}, {"bad", "  "}, {"bad", "good "}, {"bad", "BAD"}, {"a  b", "a b"},
      {"bad", "go\u2028od"}, {"bad", "\u0000"}, {"bad", "\ud800"}, {"stra\u00dfe", "STRASSE"}, {"bad"}, {},
    };
    for (Object[] labels : wrong) {
      BundleFolder folder = folder();
      folder.part("task").put("labels", Arrays.asList(labels));
      folder.write();
      assertRefused(folder.path, "$.task.labels must");
    }
    for (String kind : new String[] {"regression", "span"}) {
      BundleFolder folder = folder();
      folder.part("task").put("kind", kind);
      folder.write();
      assertRefused(folder.path, "$.task.labels must be none for '" + kind + "'; received 2");
    }
  }

  @Test
  public void outputsMustMatchTheGoldens() throws IOException {
    BundleFolder missing = folder();
    missing.answers.remove("0/outputs/logits");
    missing.answers.put("1/outputs/logits", new BundleFolder.Answer(new int[] {1, 2}, 1, 2));
    missing.write();
    assertRefused(
        missing.path, "goldens.safetensors: 0/outputs/logits must be there; it is missing",
        "goldens.safetensors must hold no tensor 1/outputs/logits");
    BundleFolder wrong = folder();
    wrong.answers.put("0/outputs/logits", new BundleFolder.Answer(new int[] {2, 1}, 1, 2));
    wrong.answers.put("0/exported_outputs/logits", new BundleFolder.Answer(new int[] {1, 2}, 1, Float.NaN));
    wrong.write();
    assertRefused(wrong.path, "it has [2, 1]", "0/exported_outputs/logits must hold finite numbers");
    BundleFolder unlisted = folder();
    unlisted.part("files").remove("goldens.safetensors");
    unlisted.describe();
    assertRefused(unlisted.path, "goldens.safetensors must be listed");
    BundleFolder damaged = folder();
    byte[] bytes = BundleFolder.safetensors("{", new byte[0]);
    damaged.part("files").put("goldens.safetensors", damaged.file("goldens.safetensors", bytes));
    damaged.describe();
    assertRefused(damaged.path, "goldens.safetensors must be a safetensors file");
  }

  @Test
  public void answersOfDifferentShapesAreRefused() throws IOException {
    for (int[] shape : new int[][] {{1, 4}, {1, 4, 1}, {1, 4, 3}}) {
      BundleFolder folder = folder();
      folder.answers.clear();
      int count = Arrays.stream(shape).reduce(1, (x, y) -> x * y);
      folder.answers.put("0/outputs/sequence_output", new BundleFolder.Answer(new int[] {1, 4, 2}, new float[8]));
      folder.answers.put("0/exported_outputs/sequence_output", new BundleFolder.Answer(shape, new float[count]));
      folder.description.put("task", null);
      folder.part("files").remove("labels.txt");
      folder.description.put(
          "outputs", Arrays.asList(BundleFolder.object("name", "sequence_output", "dtype", "float32")));
      folder.write();
      assertRefused(folder.path, "0/exported_outputs/sequence_output must have the same shape as in other examples");
    }
  }

  @Test
  public void encoderOutputsMayBeLarge() throws IOException {
    // 2 texts with 128 and 384 tokens, 4,096 numbers each, twice: 32 MiB, too large for JSON.
    BundleFolder folder = folder();
    int[] lengths = {128, 384};
    folder.lines.clear();
    List<Object> signatures = new ArrayList<>();
    folder.answers.clear();
    for (int i = 0; i < lengths.length; i++) {
      folder.lines.add(BundleFolder.golden(i == 0 ? 3 : 129));
      signatures.add(BundleFolder.object("name", "length_" + lengths[i], "length", lengths[i]));
      for (String kind : new String[] {"/outputs/", "/exported_outputs/"}) {
        float[] values = new float[lengths[i] * 4096];
        values[values.length - 1] = lengths[i];
        int[] shape = {1, lengths[i], 4096};
        folder.answers.put(i + kind + "sequence_output", new BundleFolder.Answer(shape, values));
      }
    }
    folder.description.put("signatures", signatures);
    folder.description.put("task", null);
    folder.part("files").remove("labels.txt");
    folder.description.put(
        "outputs", Arrays.asList(BundleFolder.object("name", "sequence_output", "dtype", "float32")));
    folder.write();
    assertTrue(Files.size(folder.path.resolve("goldens.safetensors")) > 1 << 24);
    Bundle bundle = Bundle.open(folder.path);
    Golden golden = bundle.goldens(384).get(0);
    assertEquals(129, golden.tokenCount());
    assertEquals(384 * 4096, golden.outputs.get("sequence_output").limit());
    assertEquals(384, golden.largestOutput(), 0);
    assertEquals(129 * 4096, golden.realValues("sequence_output"));
  }

  private static Map<String, Object> with(Map<String, Object> object, String key, Object value) {
    object.put(key, value);
    return object;
  }

  @Test
  public void tokenOutputsKeepTheirLength() throws IOException {
    for (String output : new String[] {"sequence_output", "start_logits", "end_logits", "prediction_logits"}) {
      BundleFolder folder = folder();
      folder.answers.clear();
      for (String kind : new String[] {"outputs", "exported_outputs"}) {
        folder.answers.put("0/" + kind + "/" + output, new BundleFolder.Answer(new int[] {1, 4}, 1, 2, 3, 4));
      }
      folder.description.put("task", null);
      folder.part("files").remove("labels.txt");
      folder.description.put("outputs", Arrays.asList(BundleFolder.object("name", output, "dtype", "float32")));
      folder.write();
      Bundle bundle = Bundle.open(folder.path);
      assertEquals(4, bundle.goldens(4).get(0).length);
      assertThrows(output, UserError.class, () -> bundle.goldens(7));
      for (int[] shape : new int[][] {{1, 2, 2}, {4}, {1, 5}}) {
        int count = Arrays.stream(shape).reduce(1, (x, y) -> x * y);
        folder.answers.put("0/outputs/" + output, new BundleFolder.Answer(shape, new float[count]));
        folder.write();
        assertRefused(folder.path, "0/outputs/" + output + " must have the shape [1, 4, …]; it has [");
      }
    }
  }

  @Test
  public void everyDamagedFileIsListed() throws IOException {
    BundleFolder folder = folder();
    Files.write(folder.path.resolve("model.tflite"), "not a modeL".getBytes(StandardCharsets.UTF_8));
    Files.delete(folder.path.resolve("vocab.txt"));
    assertRefused(folder.path, "model.tflite must have the sha256", "vocab.txt must be there; it is missing");
    Files.write(folder.path.resolve("model.tflite"), new byte[3]);
    assertRefused(folder.path, "model.tflite must have 11 bytes; it has 3");
  }

  @Test
  public void namesThatLeadElsewhereAreRefused() throws IOException {
    Files.write(temporary.getRoot().toPath().resolve("outside"), new byte[1]);
    for (String name : new String[] {"../outside", "/etc/hostname", "a/b", "..", ".", "", ".hidden", "a\0b", "a\\b"}) {
      BundleFolder folder = folder();
      folder.part("files").put(name, folder.part("files").get("model.tflite"));
      folder.write();
      assertRefused(folder.path, "plain file names");
    }
  }

  @Test
  public void linksAndFoldersAreRefused() throws IOException {
    for (String name : new String[] {"model.tflite", "vocab.txt", "bundle.json"}) {
      BundleFolder folder = folder();
      Path file = folder.path.resolve(name);
      Path outside = temporary.getRoot().toPath().resolve("outside_" + name);
      Files.move(file, outside);
      Files.createSymbolicLink(file, outside);
      assertRefused(folder.path, name + " must be an ordinary file");
      Files.delete(file);
      Files.createDirectory(file);
      assertRefused(folder.path, name + " must be an ordinary file");
      Files.delete(file);
    }
  }

  @Test
  public void linkToAFolderIsAccepted() throws IOException {
    Path link = temporary.getRoot().toPath().resolve("link");
    Files.createSymbolicLink(link, folder().path);
    assertEquals("bundle", Bundle.open(link).name());
  }

  @Test
  public void filesForOtherClientsMayBeLarge() throws IOException {
    BundleFolder folder = folder();
    for (String name : new String[] {"model_7.tflite", "tokenizer.json"}) {
      folder.part("files").put(name, folder.file(name, new byte[(1 << 24) + 1]));
    }
    folder.write();
    assertEquals("bundle", Bundle.open(folder.path).name());
  }

  @Test
  public void hugeFilesAreNotRead() throws IOException {
    BundleFolder folder = folder();
    try (RandomAccessFile file = new RandomAccessFile(folder.path.resolve("vocab.txt").toFile(), "rw")) {
      file.setLength((1L << 24) + 1);
    }
    assertRefused(folder.path, "vocab.txt must have at most 16777216 bytes; it has 16777217");
    try (RandomAccessFile file = new RandomAccessFile(folder.path.resolve("bundle.json").toFile(), "rw")) {
      file.setLength((1L << 24) + 1);
    }
    assertRefused(folder.path, "bundle.json must have at most");
  }

  @Test
  public void allDescriptionProblemsAreListed() throws IOException {
    BundleFolder folder = folder();
    folder.description.remove("recipe");
    folder.description.put("extra", 1);
    folder.part("tokenizer").put("lowercase", "yes");
    folder.part("task").put("kind", "translation");
    folder.part("files").put("vocab.txt", BundleFolder.object("sha256", "abc", "size_bytes", 0.5));
    folder.description.put("runtimes", Arrays.asList(1));
    folder.write();
    folder.description.put("answers", BundleFolder.object("file", "../answers", "sha256", "", "tolerance", -1));
    folder.describe();
    assertRefused(
        folder.path, "$.recipe must be a string", "$.extra is unknown", "$.tokenizer.lowercase must be true or false",
        "$.task.kind must be one of classification", "$.files.vocab.txt.sha256 must be 64",
        "$.files.vocab.txt.size_bytes must be a whole number", "$.runtimes must hold strings",
        "$.answers must have the file answers.jsonl and its sha256", "$.answers.tolerance must be a number of at least 0");
  }

  @Test
  public void unknownRecipesAreRefused() throws IOException {
    BundleFolder folder = folder();
    folder.description.put("recipe", "dynamic_wi2");
    folder.write();
    assertRefused(
        folder.path,
        "$.recipe must be one of float32, float16, dynamic_wi8, dynamic_wi4, static_wi8_ai8, static_wi8_ai8_full, "
            + "static_wi8_ai16, mixed; received 'dynamic_wi2'");
  }

  @Test
  public void changedDescriptionIsReadOrRefused() throws IOException {
    BundleFolder folder = folder();
    Path file = folder.path.resolve("bundle.json");
    byte[] content = Files.readAllBytes(file);
    Random random = new Random(7);
    int refused = 0;
    for (int i = 0; i < 500; i++) {
      byte[] changed = content.clone();
      int place = random.nextInt(changed.length);
      byte[] bytes = "{}[]\",:-019eE.\\u\0 \n\u00ff".getBytes(StandardCharsets.UTF_8);
      changed[place] = bytes[random.nextInt(bytes.length)];
      Files.write(file, i % 5 == 0 ? Arrays.copyOf(changed, place) : changed);
      try {
        Bundle.open(folder.path);
      } catch (UserError error) {
        assertFalse(error.getMessage().contains("\n"));
        refused++;
      }
    }
    assertTrue(String.valueOf(refused), refused > 350);
  }

  @Test
  public void theModelMustBeListed() throws IOException {
    BundleFolder folder = folder();
    folder.part("files").remove("model.tflite");
    folder.write();
    assertRefused(folder.path, "model.tflite must be listed");
  }

  @Test
  public void invalidVersionOrPathIsRefused() throws IOException {
    BundleFolder folder = folder();
    for (Object version : new Object[] {3, 5, "4", null}) {
      folder.description.put("schema_version", version);
      folder.write();
      String received = version instanceof Integer ? "; received " + version : "";
      assertRefused(
          folder.path, "schema_version must be 4 for this version" + received + "; export the bundle again");
    }
    folder.description.put("schema_version", 4);
    folder.part("tokenizer").put("kind", "letters");
    folder.write();
    assertRefused(folder.path, "$.tokenizer.kind must be one of", "$.tokenizer.lowercase is unknown");
    Files.write(folder.path.resolve("bundle.json"), "{".getBytes(StandardCharsets.UTF_8));
    assertRefused(folder.path, "bundle.json expected a key in quotes in line 1, found the end");
    Files.write(folder.path.resolve("bundle.json"), new byte[] {'"', (byte) 0xff, '"'});
    assertRefused(folder.path, "must be UTF-8");
    assertRefused(temporary.getRoot().toPath(), "bundle.json must be there");
    assertRefused(
        temporary.getRoot().toPath().resolve("nothing"), "a bundle must be a folder written by pocketbert export");
  }
}
