package org.pocketbert.engine;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.nio.file.Paths;
import java.util.Map;
import org.junit.Test;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.tokenizer.ModelInputs;

public class BundleEnginesTest {
  private static Bundle bundle() throws Exception {
    return Bundle.open(Paths.get(BundleEnginesTest.class.getResource("/bundles/dynamic_wi8").toURI()));
  }

  @Test
  public void everyLengthAnswersAsOnItsOwn() throws Exception {
    Bundle bundle = bundle();
    try (BundleEngines engines = new BundleEngines(bundle, 1)) {
      // In turn, so that no length may disturb another one.
      for (int length : new int[] {17, 9, 17, 9}) {
        ModelInputs inputs = bundle.tokenizer().encode("Not bad!", null, length);
        try (Engine alone = new TfLiteEngine(bundle.model(), bundle.signature(length), 1)) {
          Map<String, float[]> known = alone.run(inputs.byName());
          Map<String, float[]> found = engines.run(inputs);
          assertEquals(known.keySet(), found.keySet());
          assertArrayEquals(known.get("logits"), found.get("logits"), 0);
        }
      }
      ModelInputs other = bundle.tokenizer().encode("Not bad!", null, 8);
      assertThrows(UserError.class, () -> engines.run(other));
    }
  }

  @Test
  public void otherLengthsUseXnnpack() throws Exception {
    Bundle bundle = bundle();
    try (TfLiteEngine first = new TfLiteEngine(bundle.model(), bundle.signature(17), 1);
        TfLiteEngine second = new TfLiteEngine(first, bundle.signature(9))) {
      second.run(bundle.tokenizer().encode("Not bad!", null, 9).byName());
      // The first graph has the length 9.
      assertEquals("XNNPACK", second.delegation().name);
      assertThrows(EngineException.class, () -> new TfLiteEngine(first, "length_8"));
    }
  }
}
