package org.pocketbert.bundle;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

/** Tests on handmade bundles; tests/android/test_java_embeddings.py compares vectors of real ones with Python's. */
public class SentenceEmbedderTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private BundleFolder folder() throws IOException {
    BundleFolder folder = new BundleFolder(temporary.newFolder().toPath());
    folder.embed(new float[] {0.6f, 0.8f});
    return folder;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> options(BundleFolder folder) {
    return (Map<String, Object>) folder.part("task").get("embedding");
  }

  private static Bundle withPrompts(BundleFolder folder) throws IOException {
    options(folder).put("prompts", Arrays.asList(Arrays.asList("query", "good "), Arrays.asList("plain", "")));
    options(folder).put("default_prompt", "query");
    folder.write();
    return Bundle.open(folder.path);
  }

  @Test
  public void promptsPrecedeTheText() throws IOException {
    Bundle bundle = withPrompts(folder());
    assertEquals("query", bundle.defaultPrompt());
    assertEquals("good ", bundle.prompts().get("query"));
    SentenceEmbedder embedder = new SentenceEmbedder(bundle, inputs -> Collections.emptyMap());
    int[] prompted = {2, 5, 6, 3};
    assertArrayEquals(prompted, embedder.inputs("bad", null).wordIds);
    assertArrayEquals(prompted, embedder.inputs("bad", "query").wordIds);
    assertArrayEquals(new int[] {2, 6, 3, 1}, embedder.inputs("bad", "plain").wordIds);
    String message = assertThrows(UserError.class, () -> embedder.embed("bad", "passage")).getMessage();
    assertEquals("a prompt must be one of the model's (query, plain); received passage", message);
  }

  @Test
  public void longTextsAreTruncated() throws IOException {
    BundleFolder folder = folder();
    options(folder).put("max_length", 5);
    folder.write();
    Bundle bundle = Bundle.open(folder.path);
    assertEquals(5, bundle.maxLength());
    SentenceEmbedder embedder = new SentenceEmbedder(bundle, inputs -> Collections.emptyMap());
    // Three tokens and two special ones, padded to the length 7.
    assertArrayEquals(new int[] {2, 5, 6, 5, 3, 1, 1}, embedder.inputs("good bad good bad good", null).wordIds);
    assertNull(bundle.defaultPrompt());
    folder.part("tokenizer").put("truncation", "tail");
    folder.write();
    embedder = new SentenceEmbedder(Bundle.open(folder.path), inputs -> Collections.emptyMap());
    assertArrayEquals(new int[] {2, 5, 6, 6, 3, 1, 1}, embedder.inputs("bad good good bad bad", null).wordIds);
    options(folder).put("max_length", 100);
    folder.write();
    assertEquals(7, Bundle.open(folder.path).maxLength());
  }

  @Test
  public void wrongOutputsAreRefused() throws IOException {
    BundleFolder folder = folder();
    folder.write();
    Bundle bundle = Bundle.open(folder.path);
    Network missing = inputs -> Collections.singletonMap("logits", new float[2]);
    Network infinite = inputs -> Collections.singletonMap("embedding", new float[] {1, Float.NEGATIVE_INFINITY});
    Network right = inputs -> Collections.singletonMap("embedding", new float[] {1, 2});
    assertThrows(UserError.class, () -> new SentenceEmbedder(bundle, missing).embed("good"));
    assertThrows(UserError.class, () -> new SentenceEmbedder(bundle, infinite).embed("good"));
    assertArrayEquals(new float[] {1, 2}, new SentenceEmbedder(bundle, right).embed("good"), 0);
    String message = assertThrows(UserError.class, () -> new SpanFinder(bundle, right)).getMessage();
    assertTrue(message, message.startsWith("spans need a bundle for token_classification; "));
  }

  @Test
  public void cosineIsThatOfTheAngle() {
    // 60 degrees: cos = 1/2.
    float[] rotated = {2 * 0.5f, 2 * (float) Math.sqrt(0.75)};
    assertEquals(0.5, SentenceEmbedder.cosine(new float[] {3, 0}, rotated), 1e-7);
    assertEquals(-1, SentenceEmbedder.cosine(new float[] {1e-30f, 0}, new float[] {-1e30f, 0}), 1e-12);
    assertEquals(0, SentenceEmbedder.cosine(new float[2], rotated), 0);
    assertThrows(UserError.class, () -> SentenceEmbedder.cosine(new float[3], rotated));
  }

  @Test
  public void searchKeepsTheOrderOfTies() {
    List<float[]> documents =
        Arrays.asList(new float[] {0, 1}, new float[] {1, 0}, new float[] {-1, 0}, new float[] {2, 0});
    float[] query = {1, 0};
    assertArrayEquals(new int[] {1, 3, 0}, SentenceEmbedder.search(query, documents, 3));
    assertArrayEquals(new int[] {1, 3, 0, 2}, SentenceEmbedder.search(query, documents, 10));
    assertArrayEquals(new int[0], SentenceEmbedder.search(query, Collections.emptyList(), 10));
  }
}
