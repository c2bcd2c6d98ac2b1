package org.pocketbert.engine;

import java.util.HashMap;
import java.util.Map;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Network;
import org.pocketbert.tokenizer.ModelInputs;

/**
 * A bundle's network on TensorFlow Lite. It opens the model at its first use. All lengths share the weights in memory. It
 * is not thread-safe.
 */
public final class BundleEngines implements Network, AutoCloseable {
  private final Bundle bundle;
  private final int threads;
  private final Map<Integer, TfLiteEngine> engines = new HashMap<>();
  // Its weights serve the others.
  private TfLiteEngine first;

  /**
   * Creates the network.
   *
   * @param threads the runtime's threads
   */
  public BundleEngines(Bundle bundle, int threads) {
    this.bundle = bundle;
    this.threads = threads;
  }

  /**
   * Runs the signature of the inputs' length.
   *
   * @throws EngineException if the runtime cannot open or run it
   */
  @Override
  public Map<String, float[]> run(ModelInputs inputs) {
    TfLiteEngine engine = engines.get(inputs.length());
    if (engine == null) {
      String signature = bundle.signature(inputs.length());
      if (first == null) {
        first = new TfLiteEngine(bundle.model(), signature, threads);
        engine = first;
      } else {
        engine = new TfLiteEngine(first, signature);
      }
      engines.put(inputs.length(), engine);
    }
    return engine.run(inputs.byName());
  }

  @Override
  public void close() {
    engines.clear();
    if (first != null) {
      first.close();
      first = null;
    }
  }
}
