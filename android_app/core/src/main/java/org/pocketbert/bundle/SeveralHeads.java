package org.pocketbert.bundle;

import java.util.LinkedHashMap;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;
import org.pocketbert.tokenizer.Tokenizer;

/**
 * Answers with several heads, such as an intent and its slots, in one run of the network, as {@code pocketbert predict}
 * does.
 *
 * <p>All heads read the same tokens: longer texts than the bundle's longest length are truncated. It is thread-safe if the
 * network is.
 */
public final class SeveralHeads {
  private final Network network;
  private final Tokenizer tokenizer;
  private final int[] lengths;
  private final TaskHead task;
  private final Map<String, TextClassifier> classifiers = new LinkedHashMap<>();
  private final Map<String, SpanFinder> finders = new LinkedHashMap<>();

  /**
   * Creates a reader of texts.
   *
   * @throws UserError if the bundle has one head
   */
  public SeveralHeads(Bundle bundle, Network network) {
    if (!TaskHead.SEVERAL.equals(bundle.taskKind())) {
      throw new UserError("several heads need a bundle with several; " + bundle.name() + " is for " + bundle.taskKind());
    }
    this.network = network;
    tokenizer = bundle.tokenizer();
    lengths = bundle.lengths();
    task = bundle.task();
    for (TaskHead head : task.heads) {
      if (SpanFinder.KIND.equals(head.kind)) {
        finders.put(head.name, new SpanFinder(tokenizer, lengths, head.labels, null));
      } else if (!Scorer.KIND.equals(head.kind)) {
        classifiers.put(head.name, new TextClassifier(null, head));
      }
    }
  }

  /** Returns the answer of each head by its name, in the order of bundle.json. */
  public Map<String, HeadAnswer> answer(String text) {
    ModelInputs inputs = tokenizer.encode(TaskNetwork.text(text), null, lengths);
    Map<String, float[]> outputs = network.run(inputs);
    Map<String, HeadAnswer> answers = new LinkedHashMap<>();
    for (TaskHead head : task.heads) {
      boolean tags = finders.containsKey(head.name);
      float[] values =
          TaskNetwork.checked(outputs, head.name + "_" + (tags ? SpanFinder.OUTPUT : TextClassifier.OUTPUT));
      if (tags) {
        answers.put(head.name, new HeadAnswer(null, false, finders.get(head.name).find(text, inputs, values), null));
      } else if (classifiers.containsKey(head.name)) {
        boolean several = TextClassifier.LABELS.equals(head.kind);
        answers.put(
            head.name, new HeadAnswer(classifiers.get(head.name).classification(values), several, null, null));
      } else {
        answers.put(head.name, new HeadAnswer(null, false, null, Scorer.score(values)));
      }
    }
    return answers;
  }
}
