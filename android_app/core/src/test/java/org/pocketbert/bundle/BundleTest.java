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
import java.util.Arrays;
import java.util.List;
import java.util.Map;
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
    String message = assertThrows(UserError.class, () -> Bundle.open(path)).getMessage();
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
    bundle.checkTokenizer();
    assertThrows(UserError.class, () -> bundle.signature(5));
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
  public void aTextWithOtherIdsIsFound() throws IOException {
    BundleFolder folder = folder();
    folder.description.put("goldens", Arrays.asList(with(BundleFolder.golden(), "text", "bad")));
    folder.write();
    String message =
        assertThrows(UserError.class, () -> Bundle.open(folder.path).checkTokenizer()).getMessage();
    assertTrue(message, message.contains("must have the ids that bundle.json gives"));
  }

  private static Map<String, Object> with(Map<String, Object> object, String key, Object value) {
    object.put(key, value);
    return object;
  }

  @Test
  public void answersForEachTokenAreComparedAtTheirOwnLength() throws IOException {
    for (String output : new String[] {"sequence_output", "start_logits", "end_logits", "prediction_logits"}) {
      BundleFolder folder = folder();
      List<?> answers = Arrays.asList(Arrays.asList(1, 2, 3, 4));
      Object outputs = BundleFolder.object(output, answers);
      Map<String, Object> golden = with(BundleFolder.golden(), "outputs", outputs);
      folder.description.put("outputs", Arrays.asList(BundleFolder.object("name", output, "dtype", "float32")));
      folder.description.put("goldens", Arrays.asList(with(golden, "exported_outputs", outputs)));
      folder.write();
      Bundle bundle = Bundle.open(folder.path);
      assertEquals(4, bundle.goldens(4).get(0).length);
      assertThrows(output, UserError.class, () -> bundle.goldens(7));
    }
  }

  @Test
  public void goldenNumbersThatAreInfiniteAreRefused() throws IOException {
    BundleFolder folder = folder();
    Path file = folder.path.resolve("bundle.json");
    String text = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
    Files.write(file, text.replace("[-2.0, 0.5]", "[-2.0, 1e999]").getBytes(StandardCharsets.UTF_8));
    assertRefused(
        folder.path, "$.goldens[0].outputs.logits must hold finite numbers",
        "$.goldens[0].exported_outputs.logits must hold finite numbers");
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
  public void aFolderReachedByALinkIsFine() throws IOException {
    Path link = temporary.getRoot().toPath().resolve("link");
    Files.createSymbolicLink(link, folder().path);
    assertEquals("bundle", Bundle.open(link).name());
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
  public void everythingWrongWithTheDescriptionIsListed() throws IOException {
    BundleFolder folder = folder();
    folder.description.remove("recipe");
    folder.description.put("extra", 1);
    folder.part("tokenizer").put("lowercase", "yes");
    folder.part("task").put("kind", "translation");
    folder.part("files").put("vocab.txt", BundleFolder.object("sha256", "abc", "size_bytes", 0.5));
    folder.description.put("runtimes", Arrays.asList(1));
    folder.description.put("goldens", Arrays.asList(with(BundleFolder.golden(), "length", 5)));
    folder.write();
    assertRefused(
        folder.path, "$.recipe must be a string", "$.extra is not known", "$.tokenizer.lowercase must be true or false",
        "$.task.kind must be one of classification", "$.files.vocab.txt.sha256 must be 64",
        "$.files.vocab.txt.size_bytes must be a whole number", "$.runtimes must hold strings",
        "$.goldens[0].inputs.input_mask must be 5 whole numbers below 2");
  }

  @Test
  public void idsBeyondTheVocabularyAreRefused() throws IOException {
    BundleFolder folder = folder();
    folder.part("tokenizer").put("vocab_size", 5);
    folder.write();
    assertRefused(folder.path, "input_word_ids must be 4 whole numbers below 5");
    folder.part("tokenizer").put("vocab_size", 9);
    folder.write();
    assertRefused(folder.path, "vocab.txt must have 9 pieces");
  }

  @Test
  public void theModelMustBeListed() throws IOException {
    BundleFolder folder = folder();
    folder.part("files").remove("model.tflite");
    folder.write();
    assertRefused(folder.path, "model.tflite must be listed");
  }

  @Test
  public void otherVersionsFoldersAndFilesAreRefused() throws IOException {
    BundleFolder folder = folder();
    folder.description.put("schema_version", 2);
    folder.write();
    assertRefused(folder.path, "schema_version must be 1");
    Files.write(folder.path.resolve("bundle.json"), "{".getBytes(StandardCharsets.UTF_8));
    assertRefused(folder.path, "bundle.json expected a key in quotes in line 1, found the end");
    Files.write(folder.path.resolve("bundle.json"), new byte[] {'"', (byte) 0xff, '"'});
    assertRefused(folder.path, "must be UTF-8");
    assertRefused(temporary.getRoot().toPath(), "bundle.json must be there");
    assertRefused(temporary.getRoot().toPath().resolve("nothing"), "a bundle must be a folder");
  }
}
