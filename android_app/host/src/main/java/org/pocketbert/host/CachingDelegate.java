package org.pocketbert.host;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.Structure;
import java.nio.file.Path;
import org.bytedeco.javacpp.Loader;
import org.bytedeco.tensorflowlite.TfLiteDelegate;
import org.bytedeco.tensorflowlite.global.tensorflowlite;
import org.pocketbert.engine.EngineException;
import org.pocketbert.engine.WeightCache;

/**
 * XNNPACK with a weight cache: a file with packed weights, mapped into memory instead of packing again.
 *
 * <p>If the file is missing, XNNPACK writes it. XNNPACK checks its structure only, so open verified files: see {@link
 * WeightCache}. The presets have no interface for these functions, but their library exports them.
 */
final class CachingDelegate extends TfLiteDelegate {
  /** Functions of tensorflow/lite/delegates/xnnpack/xnnpack_delegate.h. */
  private interface Xnnpack extends Library {
    Xnnpack LIBRARY = Native.load(Loader.load(tensorflowlite.class), Xnnpack.class);

    Options.Value TfLiteXNNPackDelegateOptionsDefault();

    Pointer TfLiteXNNPackDelegateCreate(Options options);

    void TfLiteXNNPackDelegateDelete(Pointer delegate);
  }

  /** TfLiteXNNPackDelegateOptions in TensorFlow Lite 2.21. */
  @Structure.FieldOrder({
    "numThreads",
    "runtimeFlags",
    "flags",
    "weightsCache",
    "handleVariableOps",
    "weightCacheFilePath",
    "weightCacheFileDescriptor",
    "weightCacheProvider",
    "later"
  })
  public static class Options extends Structure {
    public int numThreads;
    public int runtimeFlags;
    public int flags;
    public Pointer weightsCache;
    public byte handleVariableOps;
    public String weightCacheFilePath;
    public int weightCacheFileDescriptor;
    public Pointer weightCacheProvider;
    // Room for members of other releases, such as a flag to lock the cache in memory.
    public byte[] later = new byte[32];

    /** The structure as a return value. */
    public static final class Value extends Options implements Structure.ByValue {}

    /** A structure in its own memory. */
    public Options() {}

    /** A structure in memory that has its values. */
    public Options(Pointer memory) {
      super(memory);
      setStringEncoding(System.getProperty("sun.jnu.encoding"));
    }
  }

  /** Name and release of the runtime, for {@link WeightCache}. */
  static final String RUNTIME = "tflite " + tensorflowlite.TfLiteVersion().getString();

  private final Pointer created;
  // The path's memory must live as long as the delegate.
  private final Options options;
  private boolean closed;

  private CachingDelegate(Pointer created, Options options) {
    super(new Address(Pointer.nativeValue(created)));
    this.created = created;
    this.options = options;
  }

  /** Loads the libraries, which is not part of a model's opening time. */
  static void load() {
    Xnnpack.LIBRARY.hashCode();
  }

  /**
   * Creates a delegate.
   *
   * @param cache the file
   * @throws EngineException if XNNPACK cannot be created
   */
  static CachingDelegate open(int threads, Path cache) {
    // The same memory, to be passed by reference.
    Pointer defaults = Xnnpack.LIBRARY.TfLiteXNNPackDelegateOptionsDefault().getPointer();
    Options options = Structure.newInstance(Options.class, defaults);
    options.read();
    options.numThreads = threads;
    options.weightCacheFilePath = cache.toString();
    Pointer created = Xnnpack.LIBRARY.TfLiteXNNPackDelegateCreate(options);
    if (created == null) {
      throw new EngineException("TensorFlow Lite cannot create XNNPACK with the weight cache " + cache);
    }
    return new CachingDelegate(created, options);
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      Xnnpack.LIBRARY.TfLiteXNNPackDelegateDelete(created);
      options.clear();
    }
  }

  private static final class Address extends org.bytedeco.javacpp.Pointer {
    Address(long value) {
      address = value;
    }
  }
}
