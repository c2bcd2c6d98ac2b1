package org.pocketbert.bundle;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.CRC32;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

/** Bundles in zip archives: the same content as in a folder, and one line about each fault. */
public class BundleArchiveTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  /** The files of a handmade bundle, each name with a prefix. */
  private Map<String, byte[]> files(String prefix) throws IOException {
    Path folder = new BundleFolder(temporary.newFolder().toPath()).path;
    Map<String, byte[]> files = new LinkedHashMap<>();
    for (String name :
        Arrays.asList("model.tflite", "vocab.txt", "labels.txt", "answers.jsonl", "goldens.safetensors", "bundle.json")) {
      files.put(prefix + name, Files.readAllBytes(folder.resolve(name)));
    }
    return files;
  }

  private static byte[] zip(Map<String, byte[]> files, boolean stored) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ZipOutputStream archive = new ZipOutputStream(bytes)) {
      for (Map.Entry<String, byte[]> file : files.entrySet()) {
        ZipEntry entry = new ZipEntry(file.getKey());
        if (stored) {
          CRC32 sum = new CRC32();
          sum.update(file.getValue());
          entry.setMethod(ZipEntry.STORED);
          entry.setSize(file.getValue().length);
          entry.setCrc(sum.getValue());
        }
        archive.putNextEntry(entry);
        archive.write(file.getValue());
        archive.closeEntry();
      }
    }
    return bytes.toByteArray();
  }

  private static byte[] zip(Map<String, byte[]> files) throws IOException {
    return zip(files, false);
  }

  private static void assertContent(Bundle bundle) {
    assertEquals(Arrays.asList("bad", "good"), bundle.labels());
    assertEquals("not a model", StandardCharsets.UTF_8.decode(bundle.model()).toString());
    // The runtime reads it in place.
    assertTrue(bundle.model().isDirect() && bundle.model().isReadOnly());
    assertEquals(7, bundle.tokenizer().vocabSize());
  }

  @Test
  public void everyFormOpens() throws IOException {
    byte[] root = zip(files(""));
    assertContent(Bundle.open(root));
    assertContent(Bundle.open(zip(files("moods/"), true)));
    boolean[] closed = new boolean[1];
    InputStream stream =
        new FilterInputStream(new ByteArrayInputStream(root)) {
          @Override
          public boolean markSupported() {
            return false;
          }

          @Override
          public int read(byte[] bytes, int offset, int length) throws IOException {
            // Assets give as many bytes as they please.
            return super.read(bytes, offset, Math.min(length, 7));
          }

          @Override
          public void close() throws IOException {
            closed[0] = true;
          }
        };
    assertContent(Bundle.open(stream));
    assertTrue(closed[0]);
    Path path = temporary.newFolder().toPath().resolve("moods.zip");
    Files.write(path, root);
    assertContent(Bundle.open(path));
    assertEquals("moods.zip", Bundle.open(path).name());
  }

  @Test
  public void otherFilesAreIgnored() throws IOException {
    Map<String, byte[]> files = files("moods/");
    files.put("__MACOSX/moods/._bundle.json", new byte[3]);
    files.put("moods/notes/", new byte[0]);
    files.put("moods/notes/labels.txt", new byte[] {'x'});
    files.put("other/labels.txt", new byte[] {'x'});
    files.put("x", new byte[] {'x'});
    assertContent(Bundle.open(zip(files)));
  }

  @Test
  public void largeMembersKeepTheirBytes() throws IOException {
    Map<String, byte[]> files = files("");
    byte[] large = new byte[20 << 20];
    for (int i = 0; i < large.length; i++) {
      large[i] = (byte) (i * 31 >> 7);
    }
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    folder.part("files").put("model.tflite", folder.file("model.tflite", large));
    folder.write();
    files.put("model.tflite", large);
    files.put("bundle.json", Files.readAllBytes(folder.path.resolve("bundle.json")));
    // With and without the size in front of the bytes.
    assertEquals(large.length, Bundle.open(zip(files, true)).model().remaining());
    assertEquals(large.length, Bundle.open(zip(files, false)).model().remaining());
  }

  @Test
  public void namesOutsideTheFolderAreRefused() throws IOException {
    for (String name : new String[] {"../model.tflite", "a/../../b", "/etc/passwd", "C:x", "a\\b"}) {
      Map<String, byte[]> files = files("");
      files.put(name, new byte[1]);
      assertRefused(zip(files), "archive: names must stay in the bundle's folder; received '" + name + "'");
    }
  }

  @Test
  public void ambiguousArchivesAreRefused() throws IOException {
    Map<String, byte[]> two = files("a/");
    two.putAll(files("b/"));
    assertRefused(zip(two), "must have one bundle.json, written by pocketbert export; it has 2");
    assertRefused(zip(Map.of("x.txt", new byte[1])), "it has 0; pack the bundle's folder alone");
    byte[] once = zip(files(""), true);
    // Rename a file to another one, in the only place that a stream reads.
    Map<String, byte[]> files = files("");
    files.put("vocab.tx2", new byte[1]);
    byte[] twice = zip(files, true);
    String latin = new String(twice, StandardCharsets.ISO_8859_1).replace("vocab.tx2", "vocab.txt");
    assertRefused(latin.getBytes(StandardCharsets.ISO_8859_1), "names must differ; received 'vocab.txt' twice");
    assertContent(Bundle.open(once));
  }

  @Test
  public void damagedArchivesAreRefused() throws IOException {
    byte[] whole = zip(files(""));
    String rule = "archive must be a complete zip file; received: ";
    assertRefused(new byte[0], rule + "no file in it");
    assertRefused("not a zip file".getBytes(StandardCharsets.UTF_8), rule);
    for (int length = 1; length < whole.length; length += 13) {
      // Behind the last file there is only a list, and all files have digests.
      byte[] cut = Arrays.copyOf(whole, length);
      try {
        assertContent(Bundle.open(cut));
      } catch (UserError error) {
        assertFalse(error.getMessage(), error.getMessage().contains("\n"));
      }
    }
    byte[] flipped = zip(files(""), true);
    flipped[40 + "model.tflite".length()] ^= 1;
    assertRefused(flipped, rule + "invalid entry CRC");
    byte[] encrypted = zip(files(""), true);
    encrypted[6] |= 1;
    assertRefused(encrypted, rule + "encrypted ZIP entry not supported");
    byte[] named = zip(files(""), true);
    named[30] = (byte) 0xFF;
    named[7] |= 8;
    assertRefused(named, rule + "a name that is not UTF-8");
  }

  @Test
  public void filesKeepTheirDigests() throws IOException {
    Map<String, byte[]> files = files("");
    files.put("vocab.txt", new byte[] {'x'});
    assertRefused(zip(files), "bundle archive: vocab.txt must have");
    files.remove("vocab.txt");
    assertRefused(zip(files), "vocab.txt must be there; it is missing");
    Path path = temporary.newFolder().toPath().resolve("a.zip");
    Files.write(path, zip(files));
    UserError error = assertThrows(UserError.class, () -> Bundle.open(path));
    assertTrue(error.getMessage(), error.getMessage().startsWith("bundle " + path + ": vocab.txt must be there"));
  }

  private static void assertRefused(byte[] archive, String words) {
    String message = assertThrows(UserError.class, () -> Bundle.open(archive)).getMessage();
    assertTrue(message, message.contains(words));
    assertFalse(message, message.contains("\n"));
  }
}
