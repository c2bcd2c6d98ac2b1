package org.pocketbert.app;

import java.nio.file.Path;
import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.javacpp.Loader;
import org.bytedeco.javacpp.Pointer;
import org.bytedeco.tensorflowlite.TfLiteDelegate;
import org.bytedeco.tensorflowlite.global.tensorflowlite;
import org.pocketbert.engine.EngineException;

/**
 * XNNPACK with a weight cache, by {@code jni/weight_cache.c}.
 *
 * <p>If the file is missing, XNNPACK writes it. XNNPACK checks its structure only, so open verified files: see {@link
 * org.pocketbert.engine.WeightCache}.
 */
final class CachingDelegate extends TfLiteDelegate {
  // XNNPACK keeps the address of the path.
  private final BytePointer path;
  private final long created;
  private boolean closed;

  private CachingDelegate(long created, BytePointer path) {
    super(new Address(created));
    this.created = created;
    this.path = path;
  }

  /** Whether this build of the app has the helper; loads it. */
  static boolean isAvailable() {
    try {
      // The helper needs the runtime's library.
      Loader.load(tensorflowlite.class);
      System.loadLibrary("pocketbert_weight_cache");
      return true;
    } catch (UnsatisfiedLinkError error) {
      return false;
    }
  }

  /**
   * Creates a delegate.
   *
   * @param cache the file
   * @throws EngineException if XNNPACK cannot be created
   */
  static CachingDelegate open(int threads, Path cache) {
    BytePointer path = new BytePointer(cache.toString());
    long created = create(path.address(), threads);
    if (created == 0) {
      path.close();
      throw new EngineException("TensorFlow Lite cannot create XNNPACK with the weight cache " + cache);
    }
    return new CachingDelegate(created, path);
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      delete(created);
      path.close();
    }
  }

  /** Returns the address of a new delegate, or 0. */
  private static native long create(long path, int threads);

  private static native void delete(long delegate);

  private static final class Address extends Pointer {
    Address(long value) {
      address = value;
    }
  }
}
