package org.pocketbert.app;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.pocketbert.engine.ArchiveRuntime;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.OutputFormat;
import org.tensorflow.lite.DataType;
import org.tensorflow.lite.ExecutionPlan;
import org.tensorflow.lite.Interpreter;
import org.tensorflow.lite.Tensor;
import org.tensorflow.lite.TensorFlowLite;
import org.tensorflow.lite.gpu.GpuDelegate;
import org.tensorflow.lite.gpu.GpuDelegateFactory;

/** Calls the archive's classes. */
final class Archive implements ArchiveRuntime {
  @Override
  public String version() {
    return TensorFlowLite.runtimeVersion();
  }

  @Override
  public ArchiveRuntime.OpenModel open(ByteBuffer model, String signature, int threads, Delegate delegate) {
    Interpreter.Options options = new Interpreter.Options();
    options.setNumThreads(threads);
    options.setUseXNNPACK(delegate == Delegate.CPU);
    GpuDelegate gpu = delegate == Delegate.GPU ? new GpuDelegate(halfPrecision()) : null;
    if (gpu != null) {
      options.addDelegate(gpu);
    }
    try {
      Interpreter interpreter = new Interpreter(model.duplicate().order(ByteOrder.nativeOrder()), options);
      return new Opened(interpreter, gpu, signature);
    } catch (RuntimeException error) {
      close(gpu);
      throw error;
    }
  }

  /** The archive's defaults. They are explicit, because the tolerance of golden outputs depends on them. */
  private static GpuDelegateFactory.Options halfPrecision() {
    return new GpuDelegateFactory.Options()
        .setPrecisionLossAllowed(true)
        .setInferencePreference(GpuDelegateFactory.Options.INFERENCE_PREFERENCE_FAST_SINGLE_ANSWER);
  }

  private static void close(GpuDelegate gpu) {
    if (gpu != null) {
      gpu.close();
    }
  }

  private static final class Opened implements ArchiveRuntime.OpenModel {
    private final Interpreter interpreter;
    private final GpuDelegate gpu;
    private final String signature;

    Opened(Interpreter interpreter, GpuDelegate gpu, String signature) {
      this.interpreter = interpreter;
      this.gpu = gpu;
      this.signature = signature;
    }

    @Override
    public Map<String, Integer> inputBytes() {
      Map<String, Integer> bytes = new LinkedHashMap<>();
      for (String name : interpreter.getSignatureInputs(signature)) {
        bytes.put(name, bytes(interpreter.getInputTensorFromSignature(name, signature), DataType.INT32));
      }
      return bytes;
    }

    @Override
    public Map<String, OutputFormat> outputs() {
      Map<String, OutputFormat> formats = new LinkedHashMap<>();
      for (String name : interpreter.getSignatureOutputs(signature)) {
        formats.put(name, format(interpreter.getOutputTensorFromSignature(name, signature)));
      }
      return formats;
    }

    private static OutputFormat format(Tensor tensor) {
      if (tensor.dataType() != DataType.INT8) {
        return OutputFormat.float32(bytes(tensor, DataType.FLOAT32));
      }
      Tensor.QuantizationParams quantization = tensor.quantizationParams();
      return OutputFormat.int8(bytes(tensor, DataType.INT8), quantization.getScale(), quantization.getZeroPoint());
    }

    private static int bytes(Tensor tensor, DataType type) {
      if (tensor.dataType() != type) {
        throw new IllegalArgumentException(tensor.name() + " must be " + type + "; it is " + tensor.dataType());
      }
      for (int size : tensor.shapeSignature()) {
        if (size < 0) {
          throw new IllegalArgumentException(tensor.name() + " must have a fixed shape; a dimension is open");
        }
      }
      return tensor.numBytes();
    }

    @Override
    public void run(Map<String, ByteBuffer> inputs, Map<String, ByteBuffer> outputs) {
      for (ByteBuffer output : outputs.values()) {
        output.rewind();
      }
      interpreter.runSignature(new HashMap<>(inputs), new HashMap<>(outputs), signature);
      for (ByteBuffer output : outputs.values()) {
        output.rewind();
      }
    }

    @Override
    public int planLength() {
      return ExecutionPlan.length(interpreter);
    }

    @Override
    public void close() {
      // Close the interpreter first: it calls the delegate while it closes.
      interpreter.close();
      Archive.close(gpu);
    }
  }
}
