package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.pocketbert.tokenizer.TextWords;
import org.pocketbert.tokenizer.Tokens;

/**
 * The best spans of a paragraph with different texts, by the rules of {@code pocketbert_runtime.answers.best_spans}.
 * The first span of the paragraph wins ties.
 */
final class BestSpans {
  // BERT's (run_squad.py).
  private static final int MOST_SPANS = 20;

  private final int[] text;
  private final Tokens tokens;
  private final boolean[] startsToken;
  // Best first.
  private final List<Span> spans = new ArrayList<>();

  private static final class Span {
    final String text;
    final int start;
    final int end;
    final double score;

    Span(String text, int start, int end, double score) {
      this.text = text;
      this.start = start;
      this.end = end;
      this.score = score;
    }
  }

  /**
   * Starts without spans.
   *
   * @param context the paragraph
   * @param tokens all its tokens
   */
  BestSpans(String context, Tokens tokens) {
    text = context.codePoints().toArray();
    this.tokens = tokens;
    startsToken = new boolean[text.length + 1];
    for (int start : tokens.starts) {
      startsToken[start] = true;
    }
  }

  /** Offers the span from a token to another one, in the order of the paragraph. */
  void offer(int first, int last, double score) {
    if (spans.size() == MOST_SPANS && score <= spans.get(MOST_SPANS - 1).score) {
      return;
    }
    int start = tokens.starts[first];
    int end = behindMarks(tokens.ends[last]);
    String content = new String(text, start, Math.max(0, end - start));
    for (int i = 0; i < spans.size(); i++) {
      if (spans.get(i).text.equals(content)) {
        if (spans.get(i).score >= score) {
          return;
        }
        spans.remove(i);
        break;
      }
    }
    if (spans.size() == MOST_SPANS) {
      spans.remove(MOST_SPANS - 1);
    }
    int index = spans.size();
    while (index > 0 && spans.get(index - 1).score < score) {
      index--;
    }
    spans.add(index, new Span(content, start, end, score));
  }

  /** The end of a span, after marks on its last letter that an uncased tokenizer drops. */
  private int behindMarks(int end) {
    int behind = end;
    while (behind < text.length && TextWords.isMark(text[behind]) && !startsToken[behind]) {
      behind++;
    }
    return behind;
  }

  /**
   * Returns the best span, or the empty answer.
   *
   * @param nullScore the empty answer's score
   * @param nullThreshold the answer is empty if its score is larger than the best one by more than this; null to always
   *     answer
   */
  Answer answer(double nullScore, Double nullThreshold) {
    List<Answer> none = Collections.emptyList();
    double largest = nullThreshold == null ? Double.NEGATIVE_INFINITY : nullScore;
    for (Span span : spans) {
      largest = Math.max(largest, span.score);
    }
    double sum = nullThreshold == null ? 0 : Math.exp(nullScore - largest);
    for (Span span : spans) {
      sum += Math.exp(span.score - largest);
    }
    List<Answer> best = new ArrayList<>();
    double probabilities = 0;
    for (Span span : spans) {
      double probability = Math.exp(span.score - largest) / sum;
      probabilities += probability;
      best.add(new Answer(span.text, span.start, span.end, span.score, probability, none));
    }
    boolean isEmpty =
        spans.isEmpty()
            || spans.get(0).text.isEmpty()
            || nullThreshold != null && nullScore - spans.get(0).score > nullThreshold;
    if (isEmpty) {
      return new Answer("", -1, -1, nullScore, 1 - probabilities, best);
    }
    Answer first = best.get(0);
    return new Answer(first.text, first.start, first.end, first.score, first.probability, best);
  }
}
