package org.pocketbert.engine;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.net.URISyntaxException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.Before;
import org.junit.Test;
import org.pocketbert.bundle.Bundle;

/** Tests the engine with a stand-in for the archive, which needs Android. */
public class ArchiveEngineTest {
  /** Adds its three int32 inputs of 3 numbers; returns two outputs: the first two sums, and the third. */
  private static final class StandIn implements ArchiveRuntime, ArchiveRuntime.OpenModel {
    int planLength;
    boolean isLastInt8;
    RuntimeException failure;
    RuntimeException callFailure;
    RuntimeException tensorFailure;
    RuntimeException planFailure;
    String opened;
    ByteBuffer model;
    boolean closed;

    @Override
    public String version() {
      return "2.16.1";
    }

    @Override
    public OpenModel open(ByteBuffer content, String signature, int threads, Delegate delegate) {
      if (failure != null) {
        throw failure;
      }
      model = content;
      opened = signature + " " + threads + " " + delegate;
      return this;
    }

    @Override
    public Map<String, Integer> inputBytes() {
      if (tensorFailure != null) {
        throw tensorFailure;
      }
      Map<String, Integer> bytes = new LinkedHashMap<>();
      for (String name : new String[] {"a", "b", "c"}) {
        bytes.put(name, 12);
      }
      return bytes;
    }

    @Override
    public Map<String, OutputFormat> outputs() {
      Map<String, OutputFormat> formats = new LinkedHashMap<>();
      formats.put("first", OutputFormat.float32(8));
      formats.put("last", isLastInt8 ? OutputFormat.int8(3, 0.5f, -7) : OutputFormat.float32(4));
      return formats;
    }

    @Override
    public void run(Map<String, ByteBuffer> inputs, Map<String, ByteBuffer> outputs) {
      if (callFailure != null) {
        throw callFailure;
      }
      float[] sums = new float[3];
      for (ByteBuffer input : inputs.values()) {
        assertTrue(input.isDirect());
        assertSame(ByteOrder.nativeOrder(), input.order());
        for (int i = 0; i < sums.length; i++) {
          sums[i] += input.getInt(i * Integer.BYTES);
        }
      }
      outputs.get("first").putFloat(0, sums[0]).putFloat(4, sums[1]);
      if (isLastInt8) {
        outputs.get("last").put(0, (byte) -128).put(1, (byte) -7).put(2, (byte) 127);
      } else {
        outputs.get("last").putFloat(0, sums[2]);
      }
    }

    @Override
    public int planLength() {
      if (planFailure != null) {
        throw planFailure;
      }
      return planLength;
    }

    @Override
    public void close() {
      closed = true;
    }
  }

  private final StandIn runtime = new StandIn();
  private ByteBuffer model;
  private int operators;

  @Before
  public void readModel() throws URISyntaxException {
    model = Bundle.open(Paths.get(getClass().getResource("/bundles/dynamic_wi8").toURI())).model();
    operators = FirstGraph.operators(model);
    assertTrue(operators > 20);
  }

  private ArchiveEngine open(Delegate delegate) {
    return new ArchiveEngine(runtime, model, "length_9", 3, delegate);
  }

  private static Map<String, int[]> inputs(int... first) {
    Map<String, int[]> inputs = new LinkedHashMap<>();
    inputs.put("c", new int[] {100, 200, 300});
    inputs.put("b", new int[] {10, 20, 30});
    inputs.put("a", first);
    return inputs;
  }

  @Test
  public void callsReturnTheOutputs() {
    try (ArchiveEngine engine = open(Delegate.CPU)) {
      assertEquals("length_9 3 CPU", runtime.opened);
      assertSame(model, runtime.model);
      assertEquals("tflite-aar", engine.runtimeName());
      assertEquals("2.16.1", engine.runtimeVersion());
      Map<String, float[]> one = engine.run(inputs(1, 2, 3));
      Map<String, float[]> two = engine.run(inputs(4, 5, 6));
      assertArrayEquals(new float[] {111, 222}, one.get("first"), 0);
      assertArrayEquals(new float[] {333}, one.get("last"), 0);
      assertArrayEquals(new float[] {114, 225}, two.get("first"), 0);
      assertArrayEquals(new float[] {336}, two.get("last"), 0);
    }
    assertTrue(runtime.closed);
  }

  @Test
  public void int8OutputsHaveAScaleAndAZeroPoint() {
    runtime.isLastInt8 = true;
    try (ArchiveEngine engine = open(Delegate.CPU)) {
      Map<String, float[]> outputs = engine.run(inputs(1, 2, 3));
      assertArrayEquals(new float[] {111, 222}, outputs.get("first"), 0);
      assertArrayEquals(new float[] {-60.5f, 0, 67}, outputs.get("last"), 0);
    }
  }

  @Test
  public void otherInputsAreRefused() {
    ArchiveEngine engine = open(Delegate.CPU);
    assertThrows(EngineException.class, () -> engine.run(Collections.singletonMap("a", new int[3])));
    EngineException error = assertThrows(EngineException.class, () -> engine.run(inputs(1, 2)));
    assertEquals("a must be int32 of 12 bytes; received 2 numbers", error.getMessage());
  }

  @Test
  public void shareFollowsFromThePlan() {
    runtime.planLength = 4;
    Delegation gpu = open(Delegate.GPU).delegation();
    assertEquals("GPU", gpu.name);
    // Three operators remain, and one step replaces the delegated ones.
    assertEquals(operators - 3, gpu.delegatedOps);
    assertEquals(operators, gpu.totalOps);
    assertEquals("XNNPACK", open(Delegate.CPU).delegation().name);
    runtime.planLength = 1;
    assertEquals(operators, open(Delegate.GPU).delegation().delegatedOps);
    runtime.planLength = operators;
    assertNull(open(Delegate.GPU).delegation());
  }

  @Test
  public void failureToOpenGivesAReason() {
    runtime.failure = new IllegalArgumentException("Internal error: Failed to apply delegate:\n  no OpenCL \n");
    EngineException error = assertThrows(EngineException.class, () -> open(Delegate.GPU));
    assertEquals(
        "TensorFlow Lite 2.16.1 cannot put the model on the GPU: Internal error: Failed to apply delegate: no OpenCL",
        error.getMessage());
    runtime.failure = new IllegalStateException("Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'.");
    error = assertThrows(EngineException.class, () -> open(Delegate.CPU));
    assertTrue(error.getMessage(), error.getMessage().contains("cannot open the model: Didn't find op"));
    assertTrue(error.getMessage(), error.getMessage().endsWith("export it with --runtime=tflite-2.16"));
  }

  @Test
  public void invalidTensorsCloseTheModel() {
    runtime.tensorFailure = new IllegalArgumentException("Invalid signature name: length_9");
    EngineException error = assertThrows(EngineException.class, () -> open(Delegate.GPU));
    assertEquals(
        "TensorFlow Lite 2.16.1 cannot list the tensors of length_9: Invalid signature name: length_9",
        error.getMessage());
    assertTrue(runtime.closed);
  }

  @Test
  public void unreadablePlanGivesAReason() {
    runtime.planFailure = new IllegalStateException("closed");
    ArchiveEngine engine = open(Delegate.GPU);
    EngineException error = assertThrows(EngineException.class, engine::delegation);
    assertEquals("TensorFlow Lite 2.16.1 cannot read the length of its plan: closed", error.getMessage());
  }

  @Test
  public void failedCallGivesAReason() {
    ArchiveEngine engine = open(Delegate.GPU);
    runtime.callFailure = new IllegalArgumentException("Node number 7 failed to invoke.");
    EngineException error = assertThrows(EngineException.class, () -> engine.run(inputs(1, 2, 3)));
    assertEquals("TensorFlow Lite 2.16.1 cannot run the network: Node number 7 failed to invoke.", error.getMessage());
  }

  @Test
  public void invalidModelGivesAReason() {
    ByteBuffer cut = model.duplicate();
    cut.limit(100);
    for (ByteBuffer bytes : new ByteBuffer[] {ByteBuffer.allocateDirect(0), ByteBuffer.allocateDirect(64), cut}) {
      EngineException error = assertThrows(EngineException.class, () -> FirstGraph.operators(bytes));
      assertTrue(error.getMessage(), error.getMessage().startsWith("the file must be a TFLite model"));
    }
  }
}
