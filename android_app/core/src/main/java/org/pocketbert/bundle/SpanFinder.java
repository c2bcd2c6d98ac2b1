package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;
import org.pocketbert.tokenizer.TextWords;
import org.pocketbert.tokenizer.Tokenizer;
import org.pocketbert.tokenizer.Tokens;

/**
 * Finds spans with a token classifier, as {@code pocketbert predict} does: the first token of a word carries its tag,
 * long texts are read in windows, and tags become spans by the rules of conlleval.
 *
 * <p>It is thread-safe if the network is.
 */
public final class SpanFinder {
  /** The output that the network must return: one number per token and label. */
  public static final String OUTPUT = "token_logits";

  static final String KIND = "token_classification";
  private static final String OUTSIDE = "O";
  private static final int SPECIAL_TOKENS = 2;

  private final TaskNetwork network;
  private final Tokenizer tokenizer;
  private final int[] lengths;
  private final char[] prefixes;
  private final String[] types;

  /**
   * Creates a finder.
   *
   * @throws UserError if the bundle has another task
   */
  public SpanFinder(Bundle bundle, Network network) {
    this(
        bundle.tokenizer(),
        bundle.lengths(),
        bundle.labels(),
        new TaskNetwork(bundle, KIND, "spans", network, OUTPUT));
  }

  /** A finder with some labels; without a network, it finds spans in the outputs of another one. */
  SpanFinder(Tokenizer tokenizer, int[] lengths, List<String> labels, TaskNetwork network) {
    this.network = network;
    this.tokenizer = tokenizer;
    this.lengths = lengths;
    prefixes = new char[labels.size()];
    types = new String[labels.size()];
    for (int i = 0; i < prefixes.length; i++) {
      String label = labels.get(i);
      boolean isTag = label.length() > 2 && "BIES".indexOf(label.charAt(0)) >= 0 && label.charAt(1) == '-';
      // Labels without a prefix, such as LOC, are read as I-LOC.
      prefixes[i] = label.equals(OUTSIDE) ? 'O' : isTag ? label.charAt(0) : 'I';
      types[i] = label.equals(OUTSIDE) ? "" : isTag ? label.substring(2) : label;
    }
  }

  /** Returns the spans of a text, in order. Its windows are as long as the bundle's longest length. */
  public List<LabelledSpan> find(String text) {
    TextWords words = TextWords.split(TaskNetwork.text(text));
    Tokens tokens = tokenizer.tokenize(text);
    List<int[]> windows = windows(tokens.ids.length, lengths[lengths.length - 1]);
    int[] first = firstTokens(words, tokens);
    int[] tags = new int[words.size()];
    double[] probabilities = new double[words.size()];
    Arrays.fill(tags, -1);
    for (int[] window : windows) {
      int begin = window[0];
      ModelInputs inputs = tokenizer.window(tokens, begin, window[1], lengths);
      float[] logits = network.run(inputs);
      checkCount(inputs, logits);
      for (int word = 0; word < tags.length; word++) {
        if (first[word] >= 0 && windowOf(first[word], windows) == window) {
          int row = (1 + first[word] - begin) * types.length;
          tags[word] = largest(logits, row);
          probabilities[word] = probability(logits, row, tags[word]);
        }
      }
    }
    return spans(text, words, tags, probabilities);
  }

  /** Returns the first token of each window over so many tokens, and the token after its last one. */
  static List<int[]> windows(int count, int longest) {
    int room = longest - SPECIAL_TOKENS;
    int step = Math.min(longest / 3, room);
    List<int[]> windows = new ArrayList<>();
    int begin = 0;
    while (true) {
      windows.add(new int[] {begin, Math.min(begin + room, count)});
      if (begin + room >= count) {
        return windows;
      }
      begin += step;
    }
  }

  /** Returns the spans of a text from its outputs; words behind its inputs have no tag. */
  List<LabelledSpan> find(String text, ModelInputs inputs, float[] logits) {
    checkCount(inputs, logits);
    TextWords words = TextWords.split(text);
    Tokens tokens = tokenizer.tokenize(text);
    int[] first = firstTokens(words, tokens);
    int end = Math.min(tokens.ids.length, inputs.length() - SPECIAL_TOKENS);
    int[] tags = new int[words.size()];
    double[] probabilities = new double[words.size()];
    Arrays.fill(tags, -1);
    for (int word = 0; word < tags.length; word++) {
      if (first[word] >= 0 && first[word] < end) {
        int row = (1 + first[word]) * types.length;
        tags[word] = largest(logits, row);
        probabilities[word] = probability(logits, row, tags[word]);
      }
    }
    return spans(text, words, tags, probabilities);
  }

  private void checkCount(ModelInputs inputs, float[] logits) {
    int count = inputs.length() * types.length;
    if (logits.length != count) {
      throw new UserError(
          "a network must return " + count + " numbers for " + OUTPUT + "; received " + logits.length);
    }
  }

  /** The first token that starts inside each word; -1 without one. */
  private static int[] firstTokens(TextWords words, Tokens tokens) {
    int[] first = new int[words.size()];
    int token = 0;
    for (int word = 0; word < first.length; word++) {
      while (token < tokens.starts.length && tokens.starts[token] < words.starts[word]) {
        token++;
      }
      first[word] = token < tokens.starts.length && tokens.starts[token] < words.ends[word] ? token : -1;
    }
    return first;
  }

  /** The window with the most tokens on the shorter side of a token; the first one for ties. */
  private static int[] windowOf(int token, List<int[]> windows) {
    int[] best = windows.get(0);
    int most = Integer.MIN_VALUE;
    for (int[] window : windows) {
      int context = Math.min(token - window[0], window[1] - 1 - token);
      if (context > most) {
        most = context;
        best = window;
      }
    }
    return best;
  }

  private int largest(float[] logits, int row) {
    int best = 0;
    for (int label = 1; label < types.length; label++) {
      best = logits[row + label] > logits[row + best] ? label : best;
    }
    return best;
  }

  private double probability(float[] logits, int row, int label) {
    double sum = 0;
    for (int i = 0; i < types.length; i++) {
      sum += Math.exp((double) logits[row + i] - logits[row + label]);
    }
    return 1 / sum;
  }

  private List<LabelledSpan> spans(String text, TextWords words, int[] tags, double[] probabilities) {
    List<LabelledSpan> spans = new ArrayList<>();
    int begin = 0;
    char before = 'O';
    String typeBefore = "";
    for (int word = 0; word <= tags.length; word++) {
      if (word < tags.length && tags[word] < 0 && words.continues(word)) {
        // A part of the token of a word before it.
        continue;
      }
      boolean outside = word == tags.length || tags[word] < 0;
      char prefix = outside ? 'O' : prefixes[tags[word]];
      String type = outside ? "" : types[tags[word]];
      boolean changes = !typeBefore.equals(type);
      if (before != 'O' && (changes || ends(before, prefix))) {
        spans.add(span(text, words, begin, word - 1, typeBefore, tags, probabilities));
      }
      if (prefix != 'O' && (changes || starts(before, prefix))) {
        begin = word;
      }
      before = prefix;
      typeBefore = type;
    }
    return spans;
  }

  private static boolean ends(char before, char prefix) {
    return before == 'E' || before == 'S' || prefix == 'B' || prefix == 'S' || prefix == 'O';
  }

  private static boolean starts(char before, char prefix) {
    return prefix == 'B' || prefix == 'S' || before == 'E' || before == 'S' || before == 'O';
  }

  private static LabelledSpan span(
      String text, TextWords words, int first, int last, String label, int[] tags, double[] probabilities) {
    int start = words.starts[first];
    int end = words.ends[last];
    double sum = 0;
    int count = 0;
    for (int word = first; word <= last; word++) {
      sum += probabilities[word];
      count += tags[word] < 0 ? 0 : 1;
    }
    int from = text.offsetByCodePoints(0, start);
    int to = text.offsetByCodePoints(from, end - start);
    return new LabelledSpan(text.substring(from, to), label, start, end, sum / count);
  }
}
