package org.pocketbert.benchmark;

import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.BundleFolder;

/** Tests of embeddings; tests/android/test_java_embeddings.py compares the measured values with Python's. */
public class ModelCheckTest {
  private static final int TEXTS = 8;
  private static final int FEATURES = 8;

  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  /** Texts with +1 and -1 in all features; the file's first vector is off by 2 in {@code features} of them. */
  private String problem(int features) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    float[][] values = new float[TEXTS][FEATURES];
    for (int text = 0; text < TEXTS; text++) {
      for (int feature = 0; feature < FEATURES; feature++) {
        values[text][feature] = text % 2 == 0 ? 1 : -1;
      }
    }
    folder.embed(values);
    for (int feature = 0; feature < features; feature++) {
      values[0][feature] += 2;
    }
    folder.answers.put("0/exported_outputs/embedding", new BundleFolder.Answer(new int[] {1, FEATURES}, values[0]));
    folder.description.put("recipe", "dynamic_wi4");
    folder.write();
    return ModelCheck.problem(Bundle.open(folder.path));
  }

  @Test
  public void oneFeatureCountsAsPartOfItsVector() throws IOException {
    // 2 is over the bound of 1.4, but the vector is off by 2 / sqrt(8) = 0.71, and all texts by 0.71 / sqrt(8) = 0.25.
    assertNull(problem(1));
  }

  @Test
  public void aWrongVectorIsRefused() throws IOException {
    // All texts: sqrt(2^2 / 8) = 0.707. Centred, the mean 0.25 moves to the other seven: less.
    String problem = problem(FEATURES);
    assertTrue(problem, problem.contains("off by 2.00 at most and 0.707 on average, but only 1.40 and 0.350 are allowed"));
  }

  @Test
  public void vectorsAreComparedCentred() throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    // A constant of 100 would hide that the texts differ by ±10 in the model and by ±20 in the file.
    folder.embed(new float[][] {{110, 110}, {90, 90}});
    for (int text = 0; text < 2; text++) {
      float value = text == 0 ? 120 : 80;
      BundleFolder.Answer answer = new BundleFolder.Answer(new int[] {1, 2}, value, value);
      folder.answers.put(text + "/exported_outputs/embedding", answer);
    }
    folder.description.put("recipe", "dynamic_wi8");
    folder.write();
    // 10 on the least scale, a quarter of sqrt((110^2 + 90^2) / 2) = 100.5.
    String problem = ModelCheck.problem(Bundle.open(folder.path));
    assertTrue(problem, problem.contains("off by 0.398 at most and 0.398 on average"));
  }
}
