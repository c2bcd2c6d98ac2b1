package org.pocketbert.engine;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.Test;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Golden;

/** Tests the runtime on a bundle with a tiny network; see resources/bundles/README.md. */
public class TfLiteEngineTest {
  private static Bundle bundle() throws URISyntaxException {
    Path path = Paths.get(TfLiteEngineTest.class.getResource("/bundles/dynamic_wi8").toURI());
    return Bundle.open(path);
  }

  private static Map<String, int[]> zeros(int length) {
    Map<String, int[]> inputs = new HashMap<>();
    for (String name : new String[] {Bundle.WORD_IDS, Bundle.MASK, Bundle.TYPE_IDS}) {
      inputs.put(name, new int[length]);
    }
    return inputs;
  }

  @Test
  public void itAnswersAsAtExport() throws URISyntaxException {
    Bundle bundle = bundle();
    for (int length : bundle.lengths()) {
      for (int threads : new int[] {1, 2}) {
        try (Engine engine = new TfLiteEngine(bundle.model(), bundle.signature(length), threads)) {
          for (Golden golden : bundle.goldens(length)) {
            float[] logits = engine.run(golden.inputs).get("logits");
            FloatBuffer known = golden.exportedOutputs.get("logits");
            assertEquals(known.limit(), logits.length);
            for (int i = 0; i < logits.length; i++) {
              // pocketbert_bench.configurations: dynamically quantized activations may move by a step in every layer.
              assertEquals(known.get(i), logits[i], 0.1 * golden.largestOutput());
            }
          }
        }
      }
    }
  }

  @Test
  public void callsDoNotTouchEachOther() throws URISyntaxException {
    Bundle bundle = bundle();
    Golden golden = bundle.goldens(17).get(0);
    try (Engine engine = new TfLiteEngine(bundle.model(), bundle.signature(17), 1)) {
      float[] first = engine.run(golden.inputs).get("logits");
      float[] kept = first.clone();
      float[] other = engine.run(zeros(17)).get("logits");
      assertTrue(Math.abs(other[0] - kept[0]) > 1e-3);
      assertArrayEquals(kept, first, 0);
      assertArrayEquals(kept, engine.run(golden.inputs).get("logits"), 0);
    }
  }

  @Test
  public void operatorCountEqualsTheRuntime() throws URISyntaxException {
    Bundle bundle = bundle();
    try (Engine engine = new TfLiteEngine(bundle.model(), bundle.signature(9), 1)) {
      engine.run(zeros(9));
      assertEquals(engine.delegation().totalOps, FirstGraph.operators(bundle.model()));
    }
  }

  @Test
  public void xnnpackIsAttached() throws URISyntaxException {
    Bundle bundle = bundle();
    try (Engine engine = new TfLiteEngine(bundle.model(), bundle.signature(9), 1)) {
      engine.run(zeros(9));
      Delegation delegation = engine.delegation();
      // The C interface would give the same outputs, several times slower, without delegated operators.
      assertNotNull(delegation);
      assertEquals("XNNPACK", delegation.name);
      assertTrue(delegation.delegatedOps + " of " + delegation.totalOps, delegation.delegatedOps > 100);
      assertTrue(delegation.delegatedOps < delegation.totalOps);
      assertEquals("tflite", engine.runtimeName());
      assertTrue(engine.runtimeVersion(), engine.runtimeVersion().matches("2\\.[0-9]+\\.[0-9]+"));
    }
  }

  /** Native threads created by this thread: they have its name, unlike the JVM's threads. */
  private static long ownThreads() throws IOException {
    String name = new String(Files.readAllBytes(Paths.get("/proc/thread-self/comm")));
    try (Stream<Path> tasks = Files.list(Paths.get("/proc/self/task"))) {
      return tasks.filter(task -> name.equals(commandOf(task))).count();
    }
  }

  private static String commandOf(Path task) {
    try {
      return new String(Files.readAllBytes(task.resolve("comm")));
    } catch (IOException error) {
      return "";
    }
  }

  @Test
  public void requestedThreadsAreUsed() throws IOException, URISyntaxException {
    Bundle bundle = bundle();
    for (int threads : new int[] {1, 4}) {
      long before = ownThreads();
      try (Engine engine = new TfLiteEngine(bundle.model(), bundle.signature(9), threads)) {
        engine.run(zeros(9));
        // The calling thread computes too.
        assertEquals(threads - 1, ownThreads() - before);
      }
      assertEquals(before, ownThreads());
    }
  }

  @Test
  public void wrongInputsAreRefused() throws URISyntaxException {
    Bundle bundle = bundle();
    try (Engine engine = new TfLiteEngine(bundle.model(), bundle.signature(9), 1)) {
      EngineException error = assertThrows(EngineException.class, () -> engine.run(zeros(8)));
      // The message must not depend on the runtime's uninitialized memory.
      assertTrue(error.getMessage(), error.getMessage().endsWith("must be int32 of 36 bytes; received 8 numbers"));
      assertThrows(EngineException.class, () -> engine.run(Collections.singletonMap(Bundle.MASK, new int[9])));
      Map<String, int[]> misnamed = zeros(9);
      misnamed.put("ids", misnamed.remove(Bundle.WORD_IDS));
      assertThrows(EngineException.class, () -> engine.run(misnamed));
    }
  }

  @Test
  public void invalidModelOrSignatureIsRefused() throws URISyntaxException {
    ByteBuffer junk = ByteBuffer.allocateDirect(64);
    assertThrows(EngineException.class, () -> new TfLiteEngine(junk, "length_9", 1));
    Bundle bundle = bundle();
    EngineException error =
        assertThrows(EngineException.class, () -> new TfLiteEngine(bundle.model(), "length_8", 1));
    assertEquals("the model must have the signature length_8; it is missing", error.getMessage());
    ByteBuffer half = bundle.model();
    half.limit(half.limit() / 2);
    assertThrows(EngineException.class, () -> new TfLiteEngine(half, "length_9", 1));
    assertThrows(IllegalArgumentException.class, () -> new TfLiteEngine(ByteBuffer.allocate(64), "length_9", 1));
  }
}
