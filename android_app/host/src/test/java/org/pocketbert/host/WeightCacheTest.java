package org.pocketbert.host;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.engine.WeightCache;

/** Tests with a stand-in for XNNPACK; tests/android/test_java_weight_cache.py runs the real one. */
public class WeightCacheTest {
  private static final String MODEL = "a".repeat(64);
  private static final String RUNTIME = "tflite 1.2.3";
  private static final byte[] CONTENT = {1, 2, 3, 4, 5, 6};

  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private int built;

  private Path prepare(String model) throws InterruptedException {
    int before = built;
    WeightCache cache =
        WeightCache.prepare(
            folder(),
            model,
            CONTENT.length,
            RUNTIME,
            made -> {
              built++;
              assertTrue(!Files.exists(made));
              Files.write(made, CONTENT);
            });
    assertEquals(built > before, cache.isNew());
    return cache.path;
  }

  private Path folder() {
    return temporary.getRoot().toPath().resolve("new").resolve("caches");
  }

  private List<Path> files() throws IOException {
    try (Stream<Path> files = Files.list(folder())) {
      return files.collect(Collectors.toList());
    }
  }

  @Test
  public void secondPreparationBuildsNothing() throws Exception {
    Path cache = prepare(MODEL);
    assertEquals(cache, prepare(MODEL));
    assertEquals(1, built);
    assertArrayEquals(CONTENT, Files.readAllBytes(cache));
    assertNotEquals(cache, prepare("b".repeat(64)));
    assertEquals(2, built);
    WeightCache.prepare(folder(), MODEL, CONTENT.length, "tflite 1.2.4", made -> Files.write(made, CONTENT));
    // A cache and its record for each model, and nothing else.
    assertEquals(6, files().size());
  }

  private interface Damage {
    void to(Path cache, Path record) throws IOException;
  }

  private void assertBuiltAgain(Damage damage) throws Exception {
    Path cache = prepare(MODEL);
    Path record = cache.resolveSibling(cache.getFileName().toString().replace(".xnnpack", ".json"));
    int before = built;
    damage.to(cache, record);
    assertEquals(cache, prepare(MODEL));
    assertEquals(before + 1, built);
    assertArrayEquals(CONTENT, Files.readAllBytes(cache));
    prepare(MODEL);
    assertEquals(before + 1, built);
  }

  @Test
  public void aFlippedCacheIsBuiltAgain() throws Exception {
    assertBuiltAgain((cache, record) -> Files.write(cache, new byte[] {1, 2, 3, 4, 5, 7}));
  }

  @Test
  public void aTruncatedCacheIsBuiltAgain() throws Exception {
    assertBuiltAgain((cache, record) -> Files.write(cache, Arrays.copyOf(CONTENT, 5)));
  }

  @Test
  public void anotherModelsCacheIsBuiltAgain() throws Exception {
    byte[] content = {9, 9, 9, 9, 9, 9};
    Path other = WeightCache.prepare(folder(), "b".repeat(64), 6, RUNTIME, made -> Files.write(made, content)).path;
    String otherRecord = other.toString().replace(".xnnpack", ".json");
    assertBuiltAgain((cache, record) -> Files.write(cache, Files.readAllBytes(other)));
    // With its record, so that the digest matches.
    assertBuiltAgain(
        (cache, record) -> {
          Files.write(cache, Files.readAllBytes(other));
          Files.write(record, Files.readAllBytes(Path.of(otherRecord)));
        });
  }

  @Test
  public void aDamagedRecordIsBuiltAgain() throws Exception {
    assertBuiltAgain((cache, record) -> Files.writeString(record, "{"));
    assertBuiltAgain((cache, record) -> Files.writeString(record, "[]"));
    assertBuiltAgain((cache, record) -> Files.delete(record));
    for (String name : List.of("model_sha256", "runtime", "cpu", "cpu_sha256", "sha256")) {
      assertBuiltAgain(
          (cache, record) ->
              Files.writeString(record, Files.readString(record).replaceFirst("\"" + name + "\": \"", "$0x")));
    }
  }

  @Test
  public void aBuilderThatWritesNothingIsAnError() throws Exception {
    String message =
        assertThrows(UserError.class, () -> WeightCache.prepare(folder(), MODEL, 6, RUNTIME, made -> {})).getMessage();
    assertTrue(message, message.contains("must write a weight cache"));
    assertEquals(List.of(), files());
    Path file = temporary.newFile().toPath();
    message = assertThrows(UserError.class, () -> WeightCache.prepare(file, MODEL, 6, RUNTIME, made -> {})).getMessage();
    assertTrue(message, message.startsWith("a weight cache needs a folder that you can write to; received " + file));
  }

  @Test
  public void aCacheThatDoesNotFitIsRefusedBeforeItIsBuilt() {
    long huge = Long.MAX_VALUE / 4;
    String message =
        assertThrows(
                UserError.class,
                () -> WeightCache.prepare(folder(), MODEL, huge, RUNTIME, made -> built++))
            .getMessage();
    assertTrue(message, message.startsWith("a weight cache needs ") && message.contains("free bytes"));
    assertEquals(0, built);
  }
}
