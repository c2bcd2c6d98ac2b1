package org.pocketbert.bundle;

import java.util.Arrays;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;
import org.pocketbert.tokenizer.Tokenizer;
import org.pocketbert.tokenizer.Tokens;

/**
 * Answers questions about paragraphs, as {@code pocketbert predict} does: long paragraphs are read in windows, as in
 * BERT's {@code run_squad.py}, and with a null threshold in bundle.json an answer may be empty.
 *
 * <p>It is thread-safe if the network is.
 */
public final class QuestionAnswerer {
  /** The output with the logits of an answer's first token. */
  public static final String STARTS = "start_logits";

  /** The output with the logits of an answer's last token. */
  public static final String ENDS = "end_logits";

  static final String KIND = "span";
  // BERT's (run_squad.py).
  private static final int MOST_QUESTION_TOKENS = 64;
  private static final int MOST_ANSWER_TOKENS = 30;
  private static final int LEAST_LENGTH = 5;

  private final Network network;
  private final Tokenizer tokenizer;
  private final int[] lengths;
  private final int longest;
  private final Double nullThreshold;

  /**
   * Creates an answerer.
   *
   * @throws UserError if the bundle has another task, or its longest length is too short for windows
   */
  public QuestionAnswerer(Bundle bundle, Network network) {
    this(bundle, bundle.tokenizer(), network);
  }

  /** An answerer with another tokenizer. */
  QuestionAnswerer(Bundle bundle, Tokenizer tokenizer, Network network) {
    if (!KIND.equals(bundle.taskKind())) {
      throw new UserError(
          "questions need a bundle for " + KIND + "; " + bundle.name() + " is for " + bundle.taskKind());
    }
    this.network = network;
    this.tokenizer = tokenizer;
    lengths = bundle.lengths();
    longest = lengths[lengths.length - 1];
    nullThreshold = bundle.task().nullThreshold;
    if (longest < LEAST_LENGTH) {
      throw new UserError(
          "questions need a length of at least " + LEAST_LENGTH + "; received " + longest + " as the longest of "
              + bundle.name() + "; export it with a longer one");
    }
  }

  /**
   * Answers a question about a paragraph. A question is cut to 64 tokens, or to fewer so that the paragraph has a third of
   * the bundle's longest length.
   *
   * @throws UserError if an output is missing, not finite or of another size, or a text is null
   */
  public Answer answer(String question, String context) {
    int[] questionIds = tokenizer.tokenize(TaskNetwork.text(question)).ids;
    Tokens tokens = tokenizer.tokenize(TaskNetwork.text(context));
    int specials = tokenizer.specialTokens(true);
    int step = longest / 3;
    int most = Math.min(MOST_QUESTION_TOKENS, longest - specials - step);
    int[] first = Arrays.copyOf(questionIds, Math.min(questionIds.length, most));
    int room = longest - specials - first.length;
    step = Math.min(step, room);
    int count = tokens.ids.length;
    int[] windows = windows(count, room, step);
    // The first token, the question, and the separators precede the paragraph.
    int contextStart = first.length + specials - 1;
    BestSpans best = new BestSpans(context, tokens);
    double nullScore = Double.POSITIVE_INFINITY;
    for (int window = 0; window == 0 || window * step + room - step < count; window++) {
      int begin = window * step;
      int end = Math.min(begin + room, count);
      ModelInputs inputs = tokenizer.window(first, tokens, begin, end, lengths);
      Map<String, float[]> outputs = network.run(inputs);
      float[] starts = logits(outputs, STARTS, inputs);
      float[] ends = logits(outputs, ENDS, inputs);
      nullScore = Math.min(nullScore, (double) starts[0] + ends[0]);
      for (int token = begin; token < end; token++) {
        int behind = windows[token] == window ? Math.min(token + MOST_ANSWER_TOKENS, end) : token;
        for (int last = token; last < behind; last++) {
          double start = starts[contextStart + token - begin];
          best.offer(token, last, start + ends[contextStart + last - begin]);
        }
      }
    }
    return best.answer(nullScore, nullThreshold);
  }

  private static float[] logits(Map<String, float[]> outputs, String output, ModelInputs inputs) {
    float[] values = TaskNetwork.checked(outputs, output);
    if (values.length != inputs.length()) {
      throw new UserError(
          "a network must return " + inputs.length() + " numbers for " + output + "; received " + values.length);
    }
    return values;
  }

  /** The window with the most context for each token: the most tokens on the shorter side; the first one for ties. */
  private static int[] windows(int count, int room, int step) {
    int[] windows = new int[count];
    double[] most = new double[count];
    Arrays.fill(most, Double.NEGATIVE_INFINITY);
    for (int window = 0; window == 0 || window * step + room - step < count; window++) {
      int begin = window * step;
      int length = Math.min(room, count - begin);
      for (int left = 0; left < length; left++) {
        // BERT's floating-point sum; integers would resolve some ties differently.
        double context = Math.min(left, length - 1 - left) + 0.01 * length;
        if (context > most[begin + left]) {
          most[begin + left] = context;
          windows[begin + left] = window;
        }
      }
    }
    return windows;
  }
}
