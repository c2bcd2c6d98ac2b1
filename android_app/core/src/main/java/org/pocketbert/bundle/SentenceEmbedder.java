package org.pocketbert.bundle;

import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;
import org.pocketbert.tokenizer.Tokenizer;
import org.pocketbert.tokenizer.Tokens;

/**
 * Embeds texts, as {@code pocketbert embed} does: a prompt precedes the text, and longer texts than the model's maximum
 * length are truncated.
 *
 * <p>It is thread-safe if the network is.
 */
public final class SentenceEmbedder {
  /** The output that the network must return. */
  public static final String OUTPUT = "embedding";

  static final String KIND = "embedding";
  private static final int SPECIAL_TOKENS = 2;

  private final TaskNetwork network;
  private final Tokenizer tokenizer;
  private final int[] lengths;
  private final int room;
  private final Map<String, String> prompts;
  private final String defaultPrompt;

  /**
   * Creates an embedder.
   *
   * @throws UserError if the bundle has another task
   */
  public SentenceEmbedder(Bundle bundle, Network network) {
    this.network = new TaskNetwork(bundle, KIND, "embeddings", network, OUTPUT);
    tokenizer = bundle.tokenizer();
    lengths = bundle.lengths();
    room = bundle.maxLength() - SPECIAL_TOKENS;
    prompts = bundle.prompts();
    defaultPrompt = bundle.defaultPrompt();
  }

  /** Returns the embedding of a text with the model's default prompt. */
  public float[] embed(String text) {
    return embed(text, null);
  }

  /**
   * Returns the embedding of a text.
   *
   * @param promptName name of one of the model's prompts, such as {@code query}; null for the default prompt
   * @throws UserError if the model has no such prompt, or a value is not finite
   */
  public float[] embed(String text, String promptName) {
    return network.run(inputs(text, promptName));
  }

  /**
   * Returns the network's inputs for a text, at the shortest length that fits.
   *
   * @throws UserError if the model has no such prompt
   */
  public ModelInputs inputs(String text, String promptName) {
    String name = promptName == null ? defaultPrompt : promptName;
    if (name != null && !prompts.containsKey(name)) {
      String known = prompts.isEmpty() ? "none" : String.join(", ", prompts.keySet());
      throw new UserError("a prompt must be one of the model's (" + known + "); received " + name);
    }
    Tokens tokens = tokenizer.tokenize((name == null ? "" : prompts.get(name)) + TaskNetwork.text(text));
    return tokenizer.cut(tokens, room, lengths);
  }

  /** Returns the inputs for a text with the default prompt, by another tokenizer. */
  static ModelInputs inputs(Bundle bundle, Tokenizer tokenizer, String text) {
    String prompt = bundle.defaultPrompt();
    Tokens tokens = tokenizer.tokenize(prompt == null ? text : bundle.prompts().get(prompt) + text);
    return tokenizer.cut(tokens, bundle.maxLength() - SPECIAL_TOKENS, bundle.lengths());
  }

  /**
   * Returns the cosine of two embeddings, the similarity of their texts; 0 if one of them is zero.
   *
   * @throws UserError if they have different sizes
   */
  public static double cosine(float[] first, float[] second) {
    if (first.length != second.length) {
      throw new UserError("embeddings must have one size; received " + first.length + " and " + second.length);
    }
    double product = 0;
    double firstSquares = 0;
    double secondSquares = 0;
    for (int i = 0; i < first.length; i++) {
      product += (double) first[i] * second[i];
      firstSquares += (double) first[i] * first[i];
      secondSquares += (double) second[i] * second[i];
    }
    double lengths = Math.sqrt(firstSquares) * Math.sqrt(secondSquares);
    return lengths > 0 ? product / lengths : 0;
  }

  /**
   * Finds the documents with the highest cosine, exactly.
   *
   * @param documents their embeddings
   * @param most at most this number of documents is returned
   * @return their indices, nearest first; ties in their order
   * @throws UserError if sizes differ
   */
  public static int[] search(float[] query, List<float[]> documents, int most) {
    double[] cosines = new double[documents.size()];
    Integer[] order = new Integer[cosines.length];
    for (int i = 0; i < cosines.length; i++) {
      cosines[i] = cosine(query, documents.get(i));
      order[i] = i;
    }
    Arrays.sort(order, Comparator.comparingDouble(index -> -cosines[index]));
    int[] nearest = new int[Math.min(most, order.length)];
    for (int i = 0; i < nearest.length; i++) {
      nearest[i] = order[i];
    }
    return nearest;
  }
}
