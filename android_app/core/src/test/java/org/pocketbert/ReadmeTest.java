package org.pocketbert;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.junit.Test;
import org.pocketbert.bundle.Answer;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Classification;
import org.pocketbert.bundle.LabelledSpan;
import org.pocketbert.bundle.SentenceEmbedder;
import org.pocketbert.bundle.SeparatePairs;
import org.pocketbert.bundle.SpanFinder;
import org.pocketbert.bundle.TextClassifier;
import org.pocketbert.engine.BundleEngines;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.TfLiteEngine;
import org.pocketbert.tokenizer.ByteBpeTokenizer;
import org.pocketbert.tokenizer.ByteBpeVocabulary;
import org.pocketbert.tokenizer.ModelInputs;
import org.pocketbert.tokenizer.SentencePieceModel;
import org.pocketbert.tokenizer.Tokenizer;
import org.pocketbert.tokenizer.Tokens;
import org.pocketbert.tokenizer.UnigramTokenizer;
import org.pocketbert.tokenizer.Vocabulary;
import org.pocketbert.tokenizer.WordPieceTokenizer;

/** The README's examples; tests/android/test_android_readme.py compares them line by line. */
public class ReadmeTest {
  private static Path bundleFolder() throws URISyntaxException {
    return Paths.get(ReadmeTest.class.getResource("/bundles/dynamic_wi8").toURI());
  }

  @Test
  public void tokenizer() throws Exception {
    byte[] bytesOfVocabTxt = Files.readAllBytes(bundleFolder().resolve("vocab.txt"));
    Vocabulary vocabulary = Vocabulary.parse(bytesOfVocabTxt);
    // true: lower-case the text, as in bundle.json's tokenizer.lowercase. false: read "[SEP]" in a text as characters.
    WordPieceTokenizer tokenizer = new WordPieceTokenizer(vocabulary, true, false);
    // Pad to the shortest length that holds the text.
    ModelInputs inputs = tokenizer.encode("A quiet, honest film.", null, 32, 64, 128);
    // Ids without special tokens, each with its code points in the text.
    Tokens tokens = tokenizer.tokenize("A quiet, honest film.");
    assertEquals(32, inputs.length());
    assertEquals(6, tokens.ids.length);
    assertEquals(20, tokens.starts[5]);
  }

  @Test
  public void tokenizersOfRobertaAndXlmr() {
    byte[] bytesOfVocabJson = {'{', '}'};
    byte[] bytesOfMergesTxt = {};
    byte[] bytesOfSentencepieceModel = {};
    assertThrows(
        UserError.class,
        () -> {
          Tokenizer roberta = new ByteBpeTokenizer(ByteBpeVocabulary.parse(bytesOfVocabJson, bytesOfMergesTxt), false);
          roberta.tokenize("");
        });
    assertThrows(
        UserError.class,
        () -> {
          Tokenizer xlmr = new UnigramTokenizer(SentencePieceModel.parse(bytesOfSentencepieceModel), false);
          xlmr.tokenize("");
        });
  }

  @Test
  public void network() throws Exception {
    Path path = bundleFolder();
    Bundle bundle = Bundle.open(path);
    try (Engine engine = new TfLiteEngine(bundle.model(), bundle.signature(17), 2)) {
      ModelInputs inputs = bundle.tokenizer().encode("Not bad!", null, 17);
      float[] logits = engine.run(inputs.byName()).get("logits");
      assertEquals(bundle.labels().size(), logits.length);
    }
  }

  @Test
  public void labels() throws Exception {
    Bundle bundle = Bundle.open(bundleFolder());
    try (BundleEngines engines = new BundleEngines(bundle, 2)) {
      Classification found = new TextClassifier(bundle, engines).classify("Not bad!");
      String label = found.label;  // null for a text that the bundle rejects
      double probability = found.probabilities.get(bundle.labels().get(0));
      assertEquals(true, bundle.labels().contains(label));
      assertEquals(0.5, probability, 0.5);
    }
  }

  /** Stands for Android's context and its assets. */
  private static final class Context {
    Context getAssets() {
      return this;
    }

    InputStream open(String name) throws Exception {
      assertEquals("bundle.zip", name);
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      try (ZipOutputStream archive = new ZipOutputStream(bytes);
          Stream<Path> files = Files.list(bundleFolder())) {
        for (Path file : (Iterable<Path>) files::iterator) {
          archive.putNextEntry(new ZipEntry(file.getFileName().toString()));
          archive.write(Files.readAllBytes(file));
        }
      }
      return new ByteArrayInputStream(bytes.toByteArray());
    }
  }

  @Test
  public void pipeline() throws Exception {
    Context context = new Context();
    try (Pipeline pipeline = Pipeline.open(context.getAssets().open("bundle.zip"))) {
      String label = pipeline.classifier().classify("Not bad!").label;  // null for a text that the bundle rejects
      assertEquals(true, pipeline.bundle().labels().contains(label));
      assertThrows(
          UserError.class,
          () -> {
            Answer answer = pipeline.questionAnswerer().answer("Who wrote it?", "Ada wrote the first program.");
            String words = answer.text;  // empty if the paragraph has no answer
            words.isEmpty();
          });
    }
  }

  @Test
  public void vectorsNeedEmbeddings() throws Exception {
    Bundle bundle = Bundle.open(bundleFolder());
    List<String> documents = Arrays.asList("Reset a password", "Find a shop");
    assertThrows(
        UserError.class,
        () -> {
          try (BundleEngines engines = new BundleEngines(bundle, 2)) {
            SentenceEmbedder embedder = new SentenceEmbedder(bundle, engines);
            List<float[]> vectors = new ArrayList<>();
            for (String document : documents) {
              vectors.add(embedder.embed(document));
            }
            float[] query = embedder.embed("How do I reset my password?");
            int nearest = SentenceEmbedder.search(query, vectors, 3)[0];
            double similarity = SentenceEmbedder.cosine(query, vectors.get(nearest));
            assertEquals(1, similarity, 1);
          }
        });
  }

  @Test
  public void pairsNeedTheirHead() throws Exception {
    Bundle bundle = Bundle.open(bundleFolder());
    List<String> documents = Arrays.asList("Reset a password", "Find a shop");
    assertThrows(
        UserError.class,
        () -> {
          try (BundleEngines engines = new BundleEngines(bundle, 2)) {
            SeparatePairs pairs = new SeparatePairs(bundle, engines);
            List<float[]> vectors = new ArrayList<>();
            for (String document : documents) {
              vectors.add(pairs.vector(document));
            }
            float[] query = pairs.vector("How do I reset my password?");
            String label = pairs.answer(query, vectors.get(0)).classification.label;
            assertEquals("duplicate", label);
          }
        });
  }

  @Test
  public void spansNeedTokenClassification() throws Exception {
    Bundle bundle = Bundle.open(bundleFolder());
    assertThrows(
        UserError.class,
        () -> {
          try (BundleEngines engines = new BundleEngines(bundle, 2)) {
            List<LabelledSpan> spans = new SpanFinder(bundle, engines).find("Ada met Grace in New York.");
            spans.clear();
          }
        });
  }
}
