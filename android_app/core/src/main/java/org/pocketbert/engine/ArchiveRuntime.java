package org.pocketbert.engine;

import java.nio.ByteBuffer;
import java.util.Map;

/**
 * TensorFlow Lite's archive for Android (its AAR) as far as {@link ArchiveEngine} calls it: the archive has native code
 * for Android alone, so that a computer's tests put something else here.
 */
public interface ArchiveRuntime {
  /** Its release. */
  String version();

  /**
   * Opens a signature and allocates its tensors.
   *
   * @param model a direct buffer; it must not change while the model is open
   * @param delegate {@code CPU} leaves the graph to XNNPACK; {@code GPU} offers it to the GPU in half precision, and to
   *     nobody else
   * @throws RuntimeException in the archive's own words
   */
  OpenModel open(ByteBuffer model, String signature, int threads, Delegate delegate);

  /** A signature of a model, opened. */
  interface OpenModel extends AutoCloseable {
    /**
     * Name of each input, all int32, to its size in bytes.
     *
     * @throws RuntimeException in the archive's own words, or if one has another type
     */
    Map<String, Integer> inputBytes();

    /**
     * Name of each output, all float32, to its size in bytes.
     *
     * @throws RuntimeException in the archive's own words, or if one has another type
     */
    Map<String, Integer> outputBytes();

    /**
     * One call.
     *
     * @param inputs name to a direct buffer in the processor's byte order
     * @param outputs name to such a buffer, which is filled
     * @throws RuntimeException in the archive's own words
     */
    void run(Map<String, ByteBuffer> inputs, Map<String, ByteBuffer> outputs);

    /** Steps of the first graph's plan. */
    int planLength();

    @Override
    void close();
  }
}
