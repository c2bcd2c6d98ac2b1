package org.pocketbert.device;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.BundleFolder;

public class BundleStoreTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private Path pushed;
  private Path shipped;
  private Path own;
  private BundleStore store;

  @Before
  public void makeStore() {
    pushed = temporary.getRoot().toPath().resolve("pushed");
    shipped = temporary.getRoot().toPath().resolve("shipped");
    own = temporary.getRoot().toPath().resolve("own");
    store = new BundleStore(own, pushed, shipped);
  }

  private String refusal(String name) {
    return assertThrows(UserError.class, () -> store.take(name)).getMessage();
  }

  @Test
  public void listHasBundlesAndProblems() throws IOException {
    assertTrue(store.list().isEmpty());
    new BundleFolder(pushed.resolve("b"));
    Files.delete(new BundleFolder(pushed.resolve("a")).path.resolve("bundle.json"));
    new BundleFolder(shipped.resolve("a"));
    new BundleFolder(pushed.resolve(".hidden"));
    Files.write(pushed.resolve("file"), new byte[1]);
    List<BundleStore.Entry> entries = store.list();
    assertEquals(2, entries.size());
    assertEquals("a", entries.get(0).name);
    assertEquals("bundle a: bundle.json must be there; it is missing; export it again", entries.get(0).problem);
    assertArrayEquals(new int[] {4, 7}, entries.get(1).lengths);
    assertEquals("classification", entries.get(1).taskKind);
    assertNull(entries.get(1).problem);
  }

  @Test
  public void copyReplacesThePreviousOne() throws IOException {
    BundleFolder folder = new BundleFolder(pushed.resolve("first"));
    new BundleFolder(shipped.resolve("second"));
    Bundle first = store.take("first");
    assertEquals("first", first.name());
    // Later changes to the original must not affect the copy.
    Files.write(folder.path.resolve("model.tflite"), "not the one".getBytes("US-ASCII"));
    assertArrayEquals("not a model".getBytes("US-ASCII"), Files.readAllBytes(own.resolve("first/model.tflite")));
    store.take("second");
    assertFalse(Files.exists(own.resolve("first")));
    assertTrue(Files.exists(own.resolve("second").resolve("model.tflite")));
    assertTrue(refusal("first").contains("model.tflite must have the sha256"));
  }

  @Test
  public void namesThatLeadElsewhereAreRefused() throws IOException {
    new BundleFolder(pushed.resolve("good"));
    new BundleFolder(temporary.getRoot().toPath().resolve("outside"));
    for (String name : new String[] {"../outside", "", ".", "..", "good/", "none"}) {
      assertTrue(name, refusal(name).contains("must be one of those on this phone (good); received"));
    }
    Files.createSymbolicLink(pushed.resolve("link"), temporary.getRoot().toPath().resolve("outside"));
    assertTrue(refusal("link").contains("received link"));
  }

  @Test
  public void missingFilesAreNamedWithoutFolder() throws IOException {
    BundleFolder folder = new BundleFolder(pushed.resolve("b"));
    Files.delete(folder.path.resolve("vocab.txt"));
    Files.delete(folder.path.resolve("model.tflite"));
    Files.createSymbolicLink(folder.path.resolve("model.tflite"), Files.createTempFile(pushed, "m", "x"));
    String message = refusal("b");
    assertTrue(message, message.startsWith("bundle b: model.tflite must be an ordinary file; it is a link, a folder or something else; vocab.txt must be there"));
    assertFalse(message, message.contains(temporary.getRoot().toString()));
  }

  @Test
  public void noRoomIsASentence() throws IOException {
    new BundleFolder(pushed.resolve("b"));
    Files.write(own, new byte[1]);
    assertTrue(refusal("b").contains("free storage on the phone"));
  }

  @Test
  public void filesWithOtherSizeAreRefused() throws IOException {
    BundleFolder folder = new BundleFolder(pushed.resolve("b"));
    try (RandomAccessFile model = new RandomAccessFile(folder.path.resolve("model.tflite").toFile(), "rw")) {
      model.setLength(1 << 20);
    }
    assertTrue(refusal("b"), refusal("b").contains("model.tflite must have 11 bytes; it has 1048576"));
    assertFalse(Files.exists(own.resolve("b/model.tflite")));
  }

  @Test
  public void bundleListingItsDescriptionIsRefused() throws IOException {
    BundleFolder folder = new BundleFolder(pushed.resolve("b"));
    folder.part("files").put("bundle.json", folder.part("files").get("vocab.txt"));
    folder.write();
    assertTrue(refusal("b"), refusal("b").contains("$.files must not list bundle.json"));
  }

  @Test
  public void hugeDescriptionIsListed() throws IOException {
    new BundleFolder(pushed.resolve("a"));
    char[] elements = new char[7_500_000];
    Arrays.fill(elements, '0');
    String list = "[" + new String(elements).replace("0", "0,") + "0]";
    String keys = IntStream.range(0, 1_000_000).mapToObj(i -> "\"" + i + "\":{}").collect(Collectors.joining(","));
    String[] texts = {list, "{" + keys + "}", list.replace(",", ""), list.replace("0", "[").substring(0, 15_000_000)};
    for (int i = 0; i < texts.length; i++) {
      Path folder = Files.createDirectories(pushed.resolve("huge" + i));
      Files.write(folder.resolve("bundle.json"), texts[i].getBytes("US-ASCII"));
    }
    List<BundleStore.Entry> entries = store.list();
    assertEquals(1 + texts.length, entries.size());
    assertNull(entries.get(0).problem);
    for (int i = 1; i <= texts.length; i++) {
      String problem = entries.get(i).problem;
      assertTrue(problem, problem.startsWith("bundle huge" + (i - 1) + ": bundle.json expected"));
      assertTrue(problem.length() < 200);
    }
  }

  @Test
  public void manyProblemsGiveAShortMessage() throws IOException {
    BundleFolder folder = new BundleFolder(pushed.resolve("b"));
    for (int i = 0; i < 1000; i++) {
      folder.description.put("unknown_" + new String(new char[i]).replace('\0', 'x') + i, i);
    }
    folder.write();
    String problem = store.list().get(0).problem;
    assertTrue(problem, problem.endsWith("; and 980 more problems") && problem.length() < 5000);
  }

  @Test
  public void bundlesInTheApkOpen() throws IOException {
    Path original = new BundleFolder(temporary.getRoot().toPath().resolve("original")).path;
    Path apk = temporary.newFile("app.apk").toPath();
    try (ZipOutputStream zip = new ZipOutputStream(Files.newOutputStream(apk))) {
      for (String name : original.toFile().list()) {
        zip.putNextEntry(new ZipEntry("assets/bundles/inside/" + name));
        Files.copy(original.resolve(name), zip);
      }
      for (String other : new String[] {"classes.dex", "assets/bundles/../../outside", "assets/bundles/inside/../../x"}) {
        zip.putNextEntry(new ZipEntry(other));
      }
    }
    BundleStore.unpack(apk.toString(), "assets/bundles", shipped);
    assertEquals("inside", store.take("inside").name());
    assertArrayEquals(new String[] {"inside"}, shipped.toFile().list());
    assertEquals(6, shipped.resolve("inside").toFile().list().length);
    assertFalse(Files.exists(temporary.getRoot().toPath().resolve("x")));
  }
}
