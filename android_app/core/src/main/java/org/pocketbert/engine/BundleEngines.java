package org.pocketbert.engine;

import java.util.HashMap;
import java.util.Map;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.PairNetwork;
import org.pocketbert.bundle.SeparatePairs;
import org.pocketbert.tokenizer.ModelInputs;

/**
 * A bundle's network on TensorFlow Lite. It opens a file at its first use. All lengths share the weights in memory. It is
 * not thread-safe.
 */
public final class BundleEngines implements PairNetwork, AutoCloseable {
  private final Bundle bundle;
  private final int threads;
  private final Map<Integer, TfLiteEngine> engines = new HashMap<>();
  // Its weights serve the others.
  private TfLiteEngine first;
  private TfLiteEngine head;

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

  /**
   * Runs the head of a bundle for separate pairs.
   *
   * @throws EngineException if the runtime cannot open or run it, or the vectors have another size
   */
  @Override
  public Map<String, float[]> runHead(float[] first, float[] second) {
    if (head == null) {
      head = new TfLiteEngine(bundle.pairHead(), SeparatePairs.HEAD, threads);
    }
    Map<String, float[]> vectors = new HashMap<>();
    vectors.put(SeparatePairs.FIRST, first);
    vectors.put(SeparatePairs.SECOND, second);
    return head.runFloats(vectors);
  }

  @Override
  public void close() {
    engines.clear();
    if (head != null) {
      head.close();
      head = null;
    }
    if (first != null) {
      first.close();
      first = null;
    }
  }
}
