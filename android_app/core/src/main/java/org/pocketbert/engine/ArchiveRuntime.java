package org.pocketbert.engine;

import java.nio.ByteBuffer;
import java.util.Map;

/**
 * The part of TensorFlow Lite's Android archive (AAR) used by {@link ArchiveEngine}. The archive's native code needs
 * Android, so tests on a computer replace this interface.
 */
public interface ArchiveRuntime {
  /** Its release. */
  String version();

  /**
   * Opens a signature and allocates its tensors.
   *
   * @param model a direct buffer; it must not change while the model is open
   * @param delegate {@code CPU} uses XNNPACK; {@code GPU} uses the GPU in half precision, without XNNPACK
   * @throws RuntimeException from the archive
   */
  OpenModel open(ByteBuffer model, String signature, int threads, Delegate delegate);

  /** A signature of a model, opened. */
  interface OpenModel extends AutoCloseable {
    /**
     * Input name to size in bytes; all are int32.
     *
     * @throws RuntimeException from the archive, or if a tensor has another type
     */
    Map<String, Integer> inputBytes();

    /**
     * Output name to format; all are float32 or int8.
     *
     * @throws RuntimeException from the archive, or if a tensor has another type
     */
    Map<String, OutputFormat> outputs();

    /**
     * Runs the network once.
     *
     * @param inputs name to a direct buffer in the processor's byte order
     * @param outputs name to a buffer of the same kind, which is filled
     * @throws RuntimeException from the archive
     */
    void run(Map<String, ByteBuffer> inputs, Map<String, ByteBuffer> outputs);

    /** Steps of the first graph's plan. */
    int planLength();

    @Override
    void close();
  }
}
