package org.pocketbert;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.Rule;
import org.junit.Test;
import org.junit.function.ThrowingRunnable;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.BundleFolder;
import org.pocketbert.bundle.TextClassifier;

/** Tests on a real network of three classes, and on handmade bundles for other tasks. */
public class PipelineTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private static Path folder() throws URISyntaxException {
    return Paths.get(PipelineTest.class.getResource("/bundles/dynamic_wi8").toURI());
  }

  private static byte[] zip(Path folder) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ZipOutputStream archive = new ZipOutputStream(bytes);
        Stream<Path> files = Files.list(folder)) {
      for (Path file : files.collect(Collectors.toList())) {
        archive.putNextEntry(new ZipEntry(file.getFileName().toString()));
        archive.write(Files.readAllBytes(file));
      }
    }
    return bytes.toByteArray();
  }

  private static double[] probabilities(Pipeline pipeline, String text) {
    return pipeline.classifier().classify(text).probabilities.values().stream().mapToDouble(value -> value).toArray();
  }

  @Test
  public void everySourceGivesTheSameAnswers() throws Exception {
    byte[] archive = zip(folder());
    Path file = temporary.newFolder().toPath().resolve("moods.zip");
    Files.write(file, archive);
    List<String> answers = new ArrayList<>();
    List<Callable<Pipeline>> sources =
        Arrays.asList(
            () -> Pipeline.open(folder()),
            () -> Pipeline.open(file),
            () -> Pipeline.open(archive),
            () -> Pipeline.open(Files.newInputStream(file)),
            () -> new Pipeline(Bundle.open(folder()), 2));
    for (Callable<Pipeline> source : sources) {
      try (Pipeline pipeline = source.call()) {
        answers.add(Arrays.toString(probabilities(pipeline, "Not bad!")));
        assertFalse(answers.get(0).equals(Arrays.toString(probabilities(pipeline, "a quiet film, and so dull"))));
      }
    }
    assertEquals(1, answers.stream().distinct().count());
  }

  @Test
  public void otherTasksAreRefused() throws Exception {
    try (Pipeline pipeline = Pipeline.open(folder())) {
      String remedy = "; dynamic_wi8 is for classification; call classifier()";
      assertRefused("scorer() is for regression" + remedy, pipeline::scorer);
      assertRefused("questionAnswerer() is for span" + remedy, pipeline::questionAnswerer);
      assertRefused("embedder() is for embedding" + remedy, pipeline::embedder);
      assertRefused("spanFinder() is for token_classification" + remedy, pipeline::spanFinder);
      assertRefused("severalHeads() is for several" + remedy, pipeline::severalHeads);
      assertRefused("separatePairs() is for a bundle that reads pairs apart" + remedy, pipeline::separatePairs);
    }
    BundleFolder vectors = new BundleFolder(temporary.newFolder("vectors").toPath());
    vectors.embed(new float[] {0.6f, 0.8f});
    vectors.write();
    try (Pipeline pipeline = Pipeline.open(vectors.path)) {
      String words = "classifier() is for classification and multi_label; vectors is for embedding; call embedder()";
      assertRefused(words, pipeline::classifier);
      pipeline.embedder();
    }
  }

  @Test
  public void pairsReadApartHaveTheirMethods() throws IOException {
    BundleFolder pairs = new BundleFolder(temporary.newFolder("pairs").toPath());
    pairs.pair(BundleFolder.object("kind", "regression", "name", "same", "labels", new ArrayList<>()));
    pairs.write();
    try (Pipeline pipeline = Pipeline.open(pairs.path)) {
      pipeline.scorer();
      pipeline.separatePairs();
      pipeline.embedder();
      String remedy = "; pairs is for regression; call scorer() or separatePairs()";
      assertRefused("classifier() is for classification and multi_label" + remedy, pipeline::classifier);
      // The runtime's refusal of the dummy model is one line, too.
      assertRefused("bundle pairs: the file must be a TFLite model", () -> pipeline.scorer().score("good", "bad"));
    }
  }

  @Test
  public void closedPipelinesRefuseTexts() throws Exception {
    Pipeline pipeline = Pipeline.open(folder());
    TextClassifier classifier = pipeline.classifier();
    classifier.classify("good");
    pipeline.close();
    pipeline.close();
    String words = "the pipeline of dynamic_wi8 must be open; it is closed; open the bundle again";
    assertRefused(words, () -> classifier.classify("good"));
  }

  @Test
  public void threadsShareAPipeline() throws Exception {
    ExecutorService executor = Executors.newFixedThreadPool(4);
    try (Pipeline pipeline = Pipeline.open(folder())) {
      List<String> texts = Arrays.asList("good", "a quiet film, and so dull", "Not bad!", "");
      List<String> expected = new ArrayList<>();
      for (String text : texts) {
        expected.add(Arrays.toString(probabilities(pipeline, text)));
      }
      List<Future<String>> answers = new ArrayList<>();
      for (int i = 0; i < 400; i++) {
        String text = texts.get(i % texts.size());
        answers.add(executor.submit(() -> Arrays.toString(probabilities(pipeline, text))));
      }
      for (int i = 0; i < answers.size(); i++) {
        assertEquals(expected.get(i % texts.size()), answers.get(i).get());
      }
    } finally {
      executor.shutdown();
    }
  }

  @Test
  public void wrongThreadsAreRefused() throws Exception {
    Bundle bundle = Bundle.open(folder());
    assertRefused("threads must be positive; received 0", () -> new Pipeline(bundle, 0));
  }

  private static void assertRefused(String words, ThrowingRunnable call) {
    String message = assertThrows(UserError.class, call).getMessage();
    assertTrue(message, message.contains(words));
    assertFalse(message, message.contains("\n"));
  }
}
