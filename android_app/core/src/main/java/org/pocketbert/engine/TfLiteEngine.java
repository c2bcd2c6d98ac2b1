package org.pocketbert.engine;

import static org.bytedeco.tensorflowlite.global.tensorflowlite.TfLiteVersion;
import static org.bytedeco.tensorflowlite.global.tensorflowlite.kTfLiteFloat32;
import static org.bytedeco.tensorflowlite.global.tensorflowlite.kTfLiteInt32;
import static org.bytedeco.tensorflowlite.global.tensorflowlite.kTfLiteInt8;
import static org.bytedeco.tensorflowlite.global.tensorflowlite.kTfLiteOk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.javacpp.FloatPointer;
import org.bytedeco.javacpp.IntPointer;
import org.bytedeco.javacpp.Pointer;
import org.bytedeco.javacpp.PointerPointer;
import org.bytedeco.tensorflowlite.BuiltinOpResolver;
import org.bytedeco.tensorflowlite.BuiltinOpResolverWithoutDefaultDelegates;
import org.bytedeco.tensorflowlite.FlatBufferModel;
import org.bytedeco.tensorflowlite.Interpreter;
import org.bytedeco.tensorflowlite.InterpreterBuilder;
import org.bytedeco.tensorflowlite.SignatureRunner;
import org.bytedeco.tensorflowlite.Subgraph;
import org.bytedeco.tensorflowlite.TfLiteDelegate;
import org.bytedeco.tensorflowlite.TfLiteIntArray;
import org.bytedeco.tensorflowlite.TfLiteRegistration;
import org.bytedeco.tensorflowlite.TfLiteTensor;

/**
 * Runs TensorFlow Lite through the JavaCPP presets, on phones and, with other native libraries, on computers.
 *
 * <p>It uses the C++ interface, because the presets' C interface ({@code TfLiteInterpreterCreate}) does not attach
 * XNNPACK and was several times slower on the same models.
 */
public final class TfLiteEngine implements Engine {
  // tflite::BuiltinOperator_DELEGATE.
  private static final int DELEGATE_CODE = 51;

  private final BytePointer bytes;
  private final FlatBufferModel model;
  private final BuiltinOpResolver resolver;
  private final TfLiteDelegate delegate;
  private final Interpreter interpreter;
  private final boolean isShared;
  private final SignatureRunner runner;
  private final List<String> inputNames;
  private final List<String> outputNames;
  private boolean allocated;

  /**
   * Opens a signature.
   *
   * @param content the model's bytes, a direct buffer; it must not change while the engine is open
   * @param signature its name
   * @param threads the runtime's threads
   * @throws EngineException if the bytes are not a model, the runtime lacks an operator, or the signature is missing
   */
  public TfLiteEngine(ByteBuffer content, String signature, int threads) {
    this(content, signature, threads, null);
  }

  /**
   * Opens a signature.
   *
   * @param content the model's bytes, a direct buffer; it must not change while the engine is open
   * @param signature its name
   * @param threads the runtime's threads
   * @param delegate replaces the runtime's own XNNPACK, and is closed after the engine; null for none
   * @throws EngineException if the bytes are not a model, the runtime lacks an operator, or the signature is missing
   */
  public TfLiteEngine(ByteBuffer content, String signature, int threads, TfLiteDelegate delegate) {
    this.delegate = delegate;
    isShared = false;
    interpreter = new Interpreter((Pointer) null);
    resolver = delegate == null ? new BuiltinOpResolver() : new BuiltinOpResolverWithoutDefaultDelegates();
    if (!content.isDirect()) {
      throw new IllegalArgumentException("the model must be in a direct buffer; the runtime reads it in place");
    }
    bytes = new BytePointer(content);
    model = FlatBufferModel.VerifyAndBuildFromBuffer(bytes, content.remaining());
    try {
      if (model == null || model.isNull() || !model.initialized()) {
        throw new EngineException("the file must be a TFLite model for TensorFlow Lite " + version());
      }
      try (InterpreterBuilder builder = new InterpreterBuilder(model, resolver)) {
        check("set the number of threads", builder.SetNumThreads(threads));
        if (delegate != null) {
          builder.AddDelegate(delegate);
        }
        check("build the interpreter", builder.apply(interpreter));
      }
      runner = runner(signature);
      inputNames = names(runner.input_names(), runner.input_size());
      outputNames = names(runner.output_names(), runner.output_size());
    } catch (EngineException error) {
      close();
      throw error;
    }
  }

  /**
   * Opens another signature of an engine's model. The runtime packs the weights once for all signatures, so this needs
   * memory for activations only.
   *
   * @param opened an open engine; close it after this one
   * @throws EngineException if the signature is missing
   */
  TfLiteEngine(TfLiteEngine opened, String signature) {
    bytes = opened.bytes;
    model = opened.model;
    resolver = opened.resolver;
    delegate = opened.delegate;
    interpreter = opened.interpreter;
    isShared = true;
    runner = runner(signature);
    inputNames = names(runner.input_names(), runner.input_size());
    outputNames = names(runner.output_names(), runner.output_size());
  }

  private SignatureRunner runner(String signature) {
    SignatureRunner found = interpreter.GetSignatureRunner(signature);
    if (found == null || found.isNull()) {
      throw new EngineException("the model must have the signature " + signature + "; it is missing");
    }
    return found;
  }

  @Override
  public String runtimeName() {
    return "tflite";
  }

  @Override
  public String runtimeVersion() {
    return version();
  }

  @Override
  public Map<String, float[]> run(Map<String, int[]> inputs) {
    prepare(inputs.keySet());
    for (String name : inputNames) {
      int[] values = inputs.get(name);
      new IntPointer(memory(name, kTfLiteInt32, "int32", values.length)).put(values, 0, values.length);
    }
    return outputs();
  }

  /**
   * Runs a signature with float32 inputs, such as a head on vectors; otherwise like {@link #run}.
   *
   * @throws EngineException if names or sizes differ from the signature, or the runtime fails
   */
  public Map<String, float[]> runFloats(Map<String, float[]> inputs) {
    prepare(inputs.keySet());
    for (String name : inputNames) {
      float[] values = inputs.get(name);
      new FloatPointer(memory(name, kTfLiteFloat32, "float32", values.length)).put(values, 0, values.length);
    }
    return outputs();
  }

  /** Allocates at the first call, and compares the names of the inputs with the signature's. */
  private void prepare(Set<String> names) {
    if (!allocated) {
      check("allocate its tensors", runner.AllocateTensors());
      for (String name : inputNames) {
        checkShape(name, runner.input_tensor(name).dims_signature());
      }
      allocated = true;
    }
    if (names.size() != inputNames.size() || !names.containsAll(inputNames)) {
      throw new EngineException("the inputs must be " + inputNames + "; received " + names);
    }
  }

  /** An input's memory, for so many numbers of four bytes. */
  private Pointer memory(String name, int type, String typeName, int count) {
    TfLiteTensor tensor = runner.input_tensor(name);
    if (tensor.type() != type || tensor.bytes() != (long) count * Integer.BYTES) {
      throw new EngineException(
          name + " must be " + typeName + " of " + tensor.bytes() + " bytes; received " + count + " numbers");
    }
    return tensor.data().data();
  }

  /** Runs the network and copies its outputs. */
  private Map<String, float[]> outputs() {
    check("run the network", runner.Invoke());
    Map<String, float[]> outputs = new LinkedHashMap<>();
    for (String name : outputNames) {
      TfLiteTensor tensor = runner.output_tensor(name);
      BytePointer content = new BytePointer(tensor.data().data()).capacity(tensor.bytes());
      outputs.put(name, format(name, tensor).values(content.asByteBuffer().order(ByteOrder.nativeOrder())));
    }
    return outputs;
  }

  @Override
  public Delegation delegation() {
    Subgraph graph = interpreter.subgraph(0);
    IntPointer plan = graph.execution_plan();
    int delegates = 0;
    String name = null;
    for (long i = 0; i < plan.limit(); i++) {
      TfLiteRegistration operator = graph.node_and_registration(plan.get(i)).second();
      if (operator.builtin_code() == DELEGATE_CODE) {
        delegates++;
        name = operator.custom_name().getString();
      }
    }
    if (name == null) {
      return null;
    }
    // The graph keeps replaced operators and gets one more for each delegated part.
    int total = (int) graph.nodes_size() - delegates;
    int left = (int) plan.limit() - delegates;
    return new Delegation(name.equals("TfLiteXNNPackDelegate") ? "XNNPACK" : name, total - left, total);
  }

  @Override
  public void close() {
    if (isShared) {
      return;
    }
    interpreter.close();
    if (delegate != null) {
      delegate.close();
    }
    resolver.close();
    if (model != null) {
      model.close();
    }
    bytes.close();
  }

  private static OutputFormat format(String name, TfLiteTensor tensor) {
    int bytes = (int) tensor.bytes();
    if (tensor.type() == kTfLiteFloat32) {
      return OutputFormat.float32(bytes);
    }
    if (tensor.type() == kTfLiteInt8) {
      return OutputFormat.int8(bytes, tensor.params().scale(), tensor.params().zero_point());
    }
    throw new EngineException(name + " must be float32 or int8; it has TFLite's type number " + tensor.type());
  }

  /** Refuses open dimensions: every call would allocate, and GPUs do not support them. */
  private static void checkShape(String name, TfLiteIntArray shape) {
    for (int i = 0; shape != null && !shape.isNull() && i < shape.size(); i++) {
      if (shape.data(i) < 0) {
        throw new EngineException(name + " must have a fixed shape; dimension " + i + " is open; export it again");
      }
    }
  }

  private static String version() {
    return TfLiteVersion().getString();
  }

  private static List<String> names(PointerPointer<?> pointers, long count) {
    List<String> names = new ArrayList<>();
    for (long i = 0; i < count; i++) {
      names.add(pointers.getString(i));
    }
    return names;
  }

  private static void check(String action, int status) {
    if (status != kTfLiteOk) {
      throw new EngineException("TensorFlow Lite " + version() + " cannot " + action + ": status " + status);
    }
  }
}
