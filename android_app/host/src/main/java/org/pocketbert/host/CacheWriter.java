package org.pocketbert.host;

import java.nio.file.Path;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Golden;
import org.pocketbert.engine.TfLiteEngine;

/** Writes a bundle's weight cache in its own process: {@code CacheWriter BUNDLE CACHE}. */
final class CacheWriter {
  private CacheWriter() {}

  public static void main(String[] arguments) {
    Bundle bundle = Bundle.open(Path.of(arguments[0]));
    Golden golden = bundle.goldens().get(0);
    // One signature is enough: XNNPACK packs the weights of all.
    CachingDelegate delegate = CachingDelegate.open(1, Path.of(arguments[1]));
    try (TfLiteEngine engine = new TfLiteEngine(bundle.model(), bundle.signature(golden.length), 1, delegate)) {
      engine.run(golden.inputs);
    }
  }
}
