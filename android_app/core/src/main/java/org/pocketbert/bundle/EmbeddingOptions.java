package org.pocketbert.bundle;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Preparation of texts for an embedding model, from bundle.json: the fields of {@code EmbeddingConfig} in Python. */
final class EmbeddingOptions {
  private static final List<String> POOLINGS = Arrays.asList("mean", "cls", "max");
  private static final List<String> ACTIVATIONS = Arrays.asList("tanh", "relu", "gelu", "identity");
  private static final int MOST = 1 << 20;
  // Two special tokens and one of the text.
  private static final int FEWEST_TOKENS = 3;

  /** Prompt name to the text in front of an input. */
  final Map<String, String> prompts = new LinkedHashMap<>();

  /** Name of the prompt for texts that select none; null for no prompt. */
  final String defaultPrompt;

  /** Maximum sequence length; null for the network's. */
  final Integer maxLength;

  /** Reads and checks all fields. Pooling, dense layer and normalization are in the graph, so their values are dropped. */
  EmbeddingOptions(Fields fields, List<String> problems) {
    checkChoice(fields, "pooling", POOLINGS, problems);
    checkChoice(fields, "dense_activation", ACTIVATIONS, problems);
    fields.bool("normalize");
    fields.bool("dense_bias");
    fields.bool("dense_residual");
    count(fields, "dimensions", 1, problems);
    maxLength = count(fields, "max_length", FEWEST_TOKENS, problems);
    for (Object prompt : fields.list("prompts")) {
      List<?> parts = prompt instanceof List ? (List<?>) prompt : Arrays.asList();
      if (parts.size() == 2 && parts.get(0) instanceof String && parts.get(1) instanceof String) {
        prompts.put((String) parts.get(0), (String) parts.get(1));
      } else {
        problems.add(fields.path("prompts") + " must hold pairs of name and text");
      }
    }
    defaultPrompt = fields.stringOrNull("default_prompt");
    if (defaultPrompt != null && !prompts.containsKey(defaultPrompt)) {
      problems.add(fields.path("default_prompt") + " must be one of the prompts or null");
    }
    fields.close();
  }

  private static void checkChoice(Fields fields, String name, List<String> choices, List<String> problems) {
    if (!choices.contains(fields.string(name))) {
      problems.add(fields.path(name) + " must be one of " + String.join(", ", choices));
    }
  }

  private static Integer count(Fields fields, String name, int least, List<String> problems) {
    Long count = fields.countOrNull(name);
    if (count != null && (count < least || count > MOST)) {
      problems.add(fields.path(name) + " must be a whole number from " + least + " to " + MOST);
      return null;
    }
    return count == null ? null : count.intValue();
  }
}
