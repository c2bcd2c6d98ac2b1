package org.pocketbert.engine;

import java.util.LinkedHashMap;
import java.util.Map;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Network;
import org.pocketbert.tokenizer.ModelInputs;

/** A bundle's network on TensorFlow Lite. It opens a length at its first use. It is not thread-safe. */
public final class BundleEngines implements Network, AutoCloseable {
  private final Bundle bundle;
  private final int threads;
  private final Map<Integer, Engine> engines = new LinkedHashMap<>();

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
    Engine engine = engines.get(inputs.length());
    if (engine == null) {
      engine = new TfLiteEngine(bundle.model(), bundle.signature(inputs.length()), threads);
      engines.put(inputs.length(), engine);
    }
    return engine.run(inputs.byName());
  }

  @Override
  public void close() {
    for (Engine engine : engines.values()) {
      engine.close();
    }
    engines.clear();
  }
}
