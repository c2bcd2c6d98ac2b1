package org.pocketbert.bundle;

import java.util.Map;
import org.pocketbert.tokenizer.ModelInputs;

/** Runs a bundle's model, for example {@code org.pocketbert.engine.BundleEngines}. */
public interface Network {
  /**
   * Runs the signature of the inputs' length.
   *
   * @return output name to values
   */
  Map<String, float[]> run(ModelInputs inputs);
}
