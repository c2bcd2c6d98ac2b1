package org.pocketbert;

import java.io.InputStream;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.PairNetwork;
import org.pocketbert.bundle.QuestionAnswerer;
import org.pocketbert.bundle.Scorer;
import org.pocketbert.bundle.SentenceEmbedder;
import org.pocketbert.bundle.SeparatePairs;
import org.pocketbert.bundle.SeveralHeads;
import org.pocketbert.bundle.SpanFinder;
import org.pocketbert.bundle.TextClassifier;
import org.pocketbert.engine.BundleEngines;
import org.pocketbert.engine.EngineException;
import org.pocketbert.tokenizer.ModelInputs;

/**
 * Text in, answer out: a bundle with the runtime that runs it.
 *
 * <pre>{@code
 * try (Pipeline pipeline = Pipeline.open(context.getAssets().open("bundle.zip"))) {
 *   String label = pipeline.classifier().classify("Not bad!").label;
 * }
 * }</pre>
 *
 * <p>One method for each task gives the object that answers: {@link #classifier}, {@link #scorer}, {@link
 * #questionAnswerer}, {@link #embedder}, {@link #spanFinder}, {@link #severalHeads} or {@link #separatePairs}. Several
 * threads may use a pipeline and its objects at the same time: texts run one after another. After {@link #close}, the
 * objects refuse texts.
 */
public final class Pipeline implements AutoCloseable {
  // Kind of a task → the method for it.
  private static final Map<String, String> METHODS = new HashMap<>();

  static {
    METHODS.put("classification", "classifier");
    METHODS.put("multi_label", "classifier");
    METHODS.put("regression", "scorer");
    METHODS.put("span", "questionAnswerer");
    METHODS.put("embedding", "embedder");
    METHODS.put("token_classification", "spanFinder");
    METHODS.put("several", "severalHeads");
  }

  private final Bundle bundle;
  private final OpenNetwork network;

  /**
   * Creates a pipeline for an opened bundle.
   *
   * @param threads the runtime's threads for one text, such as 2
   * @throws UserError if {@code threads} is not positive
   */
  public Pipeline(Bundle bundle, int threads) {
    if (threads < 1) {
      throw new UserError("threads must be positive; received " + threads + "; pass 1 or the number of fast cores");
    }
    this.bundle = bundle;
    network = new OpenNetwork(bundle, threads);
  }

  /**
   * Opens a bundle with one thread.
   *
   * @param path its folder, or a zip file of it
   * @throws UserError if a file is missing or damaged; see {@link Bundle#open(Path)}
   */
  public static Pipeline open(Path path) {
    return new Pipeline(Bundle.open(path), 1);
  }

  /**
   * Opens a bundle in a zip archive, with one thread.
   *
   * @param archive all its bytes
   * @throws UserError if the archive or a file is damaged; see {@link Bundle#open(byte[])}
   */
  public static Pipeline open(byte[] archive) {
    return new Pipeline(Bundle.open(archive), 1);
  }

  /**
   * Opens a bundle in a zip archive, with one thread.
   *
   * @param archive for example an asset of an Android app; read to the archive's last file, and closed
   * @throws UserError if the archive or a file is damaged; see {@link Bundle#open(InputStream)}
   */
  public static Pipeline open(InputStream archive) {
    return new Pipeline(Bundle.open(archive), 1);
  }

  /** The opened bundle. */
  public Bundle bundle() {
    return bundle;
  }

  /**
   * Returns what labels a text or a pair of texts, also a pair that is read apart.
   *
   * @throws UserError if the bundle has another task
   */
  public TextClassifier classifier() {
    require("classifier");
    return new TextClassifier(bundle, network);
  }

  /**
   * Returns what scores a text or a pair of texts, also a pair that is read apart.
   *
   * @throws UserError if the bundle has another task
   */
  public Scorer scorer() {
    require("scorer");
    return new Scorer(bundle, network);
  }

  /**
   * Returns what answers questions about paragraphs.
   *
   * @throws UserError if the bundle has another task
   */
  public QuestionAnswerer questionAnswerer() {
    require("questionAnswerer");
    return new QuestionAnswerer(bundle, network);
  }

  /**
   * Returns what embeds texts, also those of a bundle that reads pairs apart.
   *
   * @throws UserError if the bundle has another task
   */
  public SentenceEmbedder embedder() {
    // Also for the texts of a bundle that reads pairs apart.
    if (!bundle.hasPairs()) {
      require("embedder");
    }
    return new SentenceEmbedder(bundle, network);
  }

  /**
   * Returns what finds labelled spans, such as names.
   *
   * @throws UserError if the bundle has another task
   */
  public SpanFinder spanFinder() {
    require("spanFinder");
    return new SpanFinder(bundle, network);
  }

  /**
   * Returns what gives the answers of several heads.
   *
   * @throws UserError if the bundle has one head
   */
  public SeveralHeads severalHeads() {
    require("severalHeads");
    return new SeveralHeads(bundle, network);
  }

  /**
   * Returns what answers pairs from kept vectors, for a bundle that reads the texts of a pair apart.
   *
   * @throws UserError if the bundle is not for separate pairs
   */
  public SeparatePairs separatePairs() {
    if (!bundle.hasPairs()) {
      throw new UserError("separatePairs() is for a bundle that reads pairs apart; " + remedy());
    }
    return new SeparatePairs(bundle, network);
  }

  private void require(String method) {
    if (method.equals(METHODS.get(bundle.answerKind()))) {
      return;
    }
    String[] kinds = METHODS.keySet().stream().filter(kind -> method.equals(METHODS.get(kind))).toArray(String[]::new);
    Arrays.sort(kinds);
    throw new UserError(method + "() is for " + String.join(" and ", kinds) + "; " + remedy());
  }

  private String remedy() {
    String kind = bundle.answerKind();
    String method = METHODS.get(kind);
    String task = kind == null ? " has no task" : " is for " + kind;
    String pairs = bundle.hasPairs() ? " or separatePairs()" : "";
    return bundle.name() + task + (method == null ? "; open a bundle with a task" : "; call " + method + "()" + pairs);
  }

  /** Frees the runtime's memory. */
  @Override
  public void close() {
    network.close();
  }

  /** The runtime, for one text at a time, until it is closed. */
  private static final class OpenNetwork implements PairNetwork, AutoCloseable {
    private final String name;
    // Null after it is closed.
    private BundleEngines engines;

    OpenNetwork(Bundle bundle, int threads) {
      name = bundle.name();
      engines = new BundleEngines(bundle, threads);
    }

    @Override
    public synchronized Map<String, float[]> run(ModelInputs inputs) {
      try {
        return engines().run(inputs);
      } catch (EngineException error) {
        throw refused(error);
      }
    }

    @Override
    public synchronized Map<String, float[]> runHead(float[] first, float[] second) {
      try {
        return engines().runHead(first, second);
      } catch (EngineException error) {
        throw refused(error);
      }
    }

    private BundleEngines engines() {
      if (engines == null) {
        throw new UserError("the pipeline of " + name + " must be open; it is closed; open the bundle again");
      }
      return engines;
    }

    private UserError refused(EngineException error) {
      return new UserError("bundle " + name + ": " + error.getMessage());
    }

    @Override
    public synchronized void close() {
      if (engines != null) {
        engines.close();
        engines = null;
      }
    }
  }
}
