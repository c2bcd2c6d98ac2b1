package org.pocketbert.engine;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs TensorFlow Lite from its Android archive, the only build with a GPU delegate.
 *
 * <p>Its Java interface reports only how many steps remain in the first graph's plan. XNNPACK is therefore off with the
 * GPU: every removed step is the GPU's, and plain kernels run the rest.
 */
public final class ArchiveEngine implements Engine {
  private final ArchiveRuntime runtime;
  private final Delegate delegate;
  private final int operators;
  private final ArchiveRuntime.OpenModel opened;
  private final Map<String, ByteBuffer> inputBuffers;
  private final Map<String, OutputFormat> outputFormats;
  private final Map<String, ByteBuffer> outputBuffers = new LinkedHashMap<>();

  /**
   * Opens a signature.
   *
   * @param model the file's bytes, a direct buffer; it must not change while the engine is open
   * @param signature its name
   * @param threads for the operators on the CPU
   * @throws EngineException if the runtime cannot open the file, the signature is missing or has other types, or the
   *     GPU is unavailable
   */
  public ArchiveEngine(ArchiveRuntime runtime, ByteBuffer model, String signature, int threads, Delegate delegate) {
    this.runtime = runtime;
    this.delegate = delegate;
    operators = FirstGraph.operators(model);
    String action = delegate == Delegate.GPU ? "put the model on the GPU" : "open the model";
    opened = tried(action, () -> runtime.open(model, signature, threads, delegate));
    try {
      String tensors = "list the tensors of " + signature;
      inputBuffers = buffers(tried(tensors, opened::inputBytes));
      outputFormats = tried(tensors, opened::outputs);
    } catch (EngineException error) {
      // No caller can close it: the constructor fails.
      opened.close();
      throw error;
    }
    for (Map.Entry<String, OutputFormat> output : outputFormats.entrySet()) {
      outputBuffers.put(output.getKey(), buffer(output.getValue().bytes));
    }
  }

  @Override
  public String runtimeName() {
    return "tflite-aar";
  }

  @Override
  public String runtimeVersion() {
    return runtime.version();
  }

  @Override
  public Map<String, float[]> run(Map<String, int[]> inputs) {
    if (!inputs.keySet().equals(inputBuffers.keySet())) {
      throw new EngineException("the inputs must be " + inputBuffers.keySet() + "; received " + inputs.keySet());
    }
    for (Map.Entry<String, int[]> input : inputs.entrySet()) {
      ByteBuffer buffer = inputBuffers.get(input.getKey());
      if (buffer.capacity() != input.getValue().length * Integer.BYTES) {
        throw new EngineException(
            input.getKey() + " must be int32 of " + buffer.capacity() + " bytes; received " + input.getValue().length
                + " numbers");
      }
      buffer.asIntBuffer().put(input.getValue());
    }
    tried(
        "run the network",
        () -> {
          opened.run(inputBuffers, outputBuffers);
          return null;
        });
    Map<String, float[]> outputs = new LinkedHashMap<>();
    for (Map.Entry<String, ByteBuffer> output : outputBuffers.entrySet()) {
      outputs.put(output.getKey(), outputFormats.get(output.getKey()).values(output.getValue()));
    }
    return outputs;
  }

  @Override
  public Delegation delegation() {
    String name = delegate == Delegate.GPU ? delegate.name() : "XNNPACK";
    return Delegation.ofPlan(name, operators, tried("read the length of its plan", opened::planLength));
  }

  @Override
  public void close() {
    opened.close();
  }

  private interface Action<T> {
    T get();
  }

  private <T> T tried(String what, Action<T> action) {
    try {
      return action.get();
    } catch (RuntimeException error) {
      String said = String.valueOf(error.getMessage()).replaceAll("\\s+", " ").trim();
      // The operator's version is newer than this release.
      String hint = said.contains("Didn't find op") ? "; export it with --runtime=tflite-2.16" : "";
      throw new EngineException("TensorFlow Lite " + runtime.version() + " cannot " + what + ": " + said + hint);
    }
  }

  private static Map<String, ByteBuffer> buffers(Map<String, Integer> bytes) {
    Map<String, ByteBuffer> buffers = new LinkedHashMap<>();
    for (Map.Entry<String, Integer> tensor : bytes.entrySet()) {
      buffers.put(tensor.getKey(), buffer(tensor.getValue()));
    }
    return buffers;
  }

  private static ByteBuffer buffer(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }
}
