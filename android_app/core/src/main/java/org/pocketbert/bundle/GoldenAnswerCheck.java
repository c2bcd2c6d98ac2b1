package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.pocketbert.UserError;
import org.pocketbert.tokenizer.ModelInputs;

/** Answers golden texts and compares the answers with answers.jsonl, as {@code Bundle.check} in Python does. */
final class GoldenAnswerCheck {
  // Probabilities have six decimals in the file.
  private static final double ROUNDING = 1.1e-6;

  private final Bundle bundle;
  private final Network network;
  private final double tolerance;
  // The outputs for the rows of the text that is being answered.
  private final List<Map<String, float[]>> outputs = new ArrayList<>();
  // The answer to the question that is being answered.
  private Answer best;

  GoldenAnswerCheck(Bundle bundle, Network network, double tolerance) {
    this.bundle = bundle;
    this.tolerance = tolerance;
    this.network = network;
  }

  /** Returns a sentence for each line with another answer. */
  List<String> problems(List<GoldenLine> lines) {
    List<String> problems = new ArrayList<>();
    String kind = bundle.taskKind();
    Network recording = this::run;
    for (GoldenLine line : lines) {
      outputs.clear();
      Map<?, ?> answer = kind == null ? null : answer(line, recording);
      if (answer == null || line.answer == null) {
        if (answer != line.answer) {
          problems.add(line.subject() + " must have " + (answer == null ? "no answer" : "an answer"));
        }
        continue;
      }
      List<String> differences = new ArrayList<>();
      compare(line, line.answer, answer, "", bundle.hasPairs() ? bundle.pairs() : bundle.task(), differences);
      if (!differences.isEmpty()) {
        problems.add(line.subject() + " " + differences.get(0));
      }
    }
    return problems;
  }

  private Map<String, float[]> run(ModelInputs inputs) {
    Map<String, float[]> answer = network.run(inputs);
    outputs.add(answer);
    return answer;
  }

  private Map<String, Object> answer(GoldenLine line, Network recording) {
    Map<String, Object> answer = new LinkedHashMap<>();
    String kind = bundle.taskKind();
    if (bundle.hasPairs()) {
      if (!(network instanceof PairNetwork)) {
        throw new UserError("a bundle for separate pairs needs a network with runHead; received one without it");
      }
      put(answer, new SeparatePairs(bundle, (PairNetwork) network).predict(line.text, line.pair));
    } else if (SentenceEmbedder.KIND.equals(kind)) {
      List<Double> vector = new ArrayList<>();
      for (float value : new SentenceEmbedder(bundle, recording).embed(line.text)) {
        vector.add((double) value);
      }
      answer.put(SentenceEmbedder.OUTPUT, vector);
    } else if (TaskHead.SEVERAL.equals(kind)) {
      for (Map.Entry<String, HeadAnswer> head : new SeveralHeads(bundle, recording).answer(line.text).entrySet()) {
        Map<String, Object> part = new LinkedHashMap<>();
        put(part, head.getValue());
        answer.put(head.getKey(), part);
      }
    } else if (QuestionAnswerer.KIND.equals(kind)) {
      best = new QuestionAnswerer(bundle, recording).answer(line.text, line.pair == null ? "" : line.pair);
      answer.put("answer", best.text);
      answer.put("start", best.start < 0 ? null : (Object) (long) best.start);
      answer.put("end", best.end < 0 ? null : (Object) (long) best.end);
      answer.put("score", best.score);
      answer.put("probability", best.probability);
    } else if (SpanFinder.KIND.equals(kind)) {
      put(answer, new HeadAnswer(null, false, new SpanFinder(bundle, recording).find(line.text), null));
    } else if (Scorer.KIND.equals(kind)) {
      put(answer, new HeadAnswer(null, false, null, new Scorer(bundle, recording).score(line.text, line.pair)));
    } else if (TextClassifier.CLASSES.equals(kind) || TextClassifier.LABELS.equals(kind)) {
      Classification classification = new TextClassifier(bundle, recording).classify(line.text, line.pair);
      put(answer, new HeadAnswer(classification, TextClassifier.LABELS.equals(kind), null, null));
    } else {
      return null;
    }
    return answer;
  }

  private static void put(Map<String, Object> answer, HeadAnswer head) {
    if (head.classification != null) {
      if (head.severalLabels) {
        answer.put("labels", head.classification.labels);
      } else {
        answer.put("label", head.classification.label);
      }
      answer.put("probabilities", head.classification.probabilities);
    } else if (head.spans != null) {
      List<Object> spans = new ArrayList<>();
      for (LabelledSpan span : head.spans) {
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("text", span.text);
        values.put("label", span.label);
        values.put("start", (long) span.start);
        values.put("end", (long) span.end);
        values.put("probability", span.probability);
        spans.add(values);
      }
      answer.put("spans", spans);
    } else {
      answer.put("score", head.score);
    }
  }

  private void compare(
      GoldenLine line, Map<?, ?> golden, Map<?, ?> answer, String prefix, TaskHead head, List<String> problems) {
    if (!golden.keySet().equals(answer.keySet())) {
      problems.add("must have an answer with " + golden.keySet() + "; the bundle answers with " + answer.keySet());
      return;
    }
    for (Object name : answer.keySet()) {
      Object expected = golden.get(name);
      Object value = answer.get(name);
      if (TaskHead.SEVERAL.equals(head.kind) && expected instanceof Map) {
        compare(line, (Map<?, ?>) expected, (Map<?, ?>) value, name + ": ", head.of(name + "_"), problems);
      } else if (!nearTie(line, (String) name, golden, answer, head)) {
        compareValues(prefix + name, expected, value, problems);
      }
    }
  }

  private void compareValues(String name, Object golden, Object value, List<String> problems) {
    if (golden instanceof Map && value instanceof Map && ((Map<?, ?>) golden).keySet().equals(((Map<?, ?>) value).keySet())) {
      for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
        compareValues(name + "." + entry.getKey(), ((Map<?, ?>) golden).get(entry.getKey()), entry.getValue(), problems);
      }
    } else if (golden instanceof List && value instanceof List && ((List<?>) golden).size() == ((List<?>) value).size()) {
      for (int i = 0; i < ((List<?>) value).size(); i++) {
        compareValues(name + "[" + i + "]", ((List<?>) golden).get(i), ((List<?>) value).get(i), problems);
      }
    } else if (golden instanceof Number && value instanceof Double) {
      double difference = Math.abs(((Number) golden).doubleValue() - (Double) value);
      if (!(difference <= tolerance + ROUNDING)) {
        problems.add(
            String.format(
                Locale.ROOT, "must have the %s %.6g, up to %.2g; the bundle answers %.6g", name,
                ((Number) golden).doubleValue(), tolerance, (Double) value));
      }
    } else if (golden == null ? value != null : !golden.equals(value)) {
      problems.add("must have the " + name + " " + shown(golden) + "; the bundle answers " + shown(value));
    }
  }

  /** Whether a member may differ because two choices nearly tie. */
  private boolean nearTie(GoldenLine line, String name, Map<?, ?> golden, Map<?, ?> answer, TaskHead head) {
    Object expected = golden.get(name);
    Object value = answer.get(name);
    if (QuestionAnswerer.KIND.equals(head.kind)) {
      return questionsNearlyTie(name, golden, head);
    }
    if (name.equals("spans") && expected instanceof List && !expected.equals(value)) {
      return spansNearlyTie(line, (List<?>) expected, (List<?>) value, head);
    }
    if (!name.equals("label") && !name.equals("labels") || expected != null && expected.equals(value)) {
      return false;
    }
    DecisionOptions decisions = head.decisions;
    double[] thresholds = decisions == null ? null : decisions.thresholds;
    double[] probabilities = new double[head.labels.size()];
    double most = 0;
    for (int i = 0; i < probabilities.length; i++) {
      probabilities[i] = (Double) ((Map<?, ?>) answer.get("probabilities")).get(head.labels.get(i));
      most = Math.max(most, probabilities[i]);
    }
    if (name.equals("labels")) {
      if (!(expected instanceof List) || !head.labels.containsAll((List<?>) expected)
          || new HashSet<Object>((List<?>) expected).size() < ((List<?>) expected).size()) {
        return false;
      }
      for (int i = 0; i < probabilities.length; i++) {
        boolean differs =
            ((List<?>) expected).contains(head.labels.get(i)) != ((List<?>) value).contains(head.labels.get(i));
        if (differs && Math.abs(probabilities[i] - (thresholds == null ? 0.5 : thresholds[i])) >= tolerance) {
          return false;
        }
      }
      return true;
    }
    if (expected == null || value == null) {
      double least = decisions == null || decisions.rejectBelow == null ? 0 : decisions.rejectBelow;
      return Math.abs(most - least) < tolerance;
    }
    int other = head.labels.indexOf(expected);
    if (other < 0) {
      return false;
    }
    return thresholds == null
        ? probabilities[head.labels.indexOf(value)] - probabilities[other] < 2 * tolerance
        : Math.abs(probabilities[0] - thresholds[0]) < tolerance;
  }

  /** As {@code SpanAnswers.near_ties} in Python. */
  private boolean questionsNearlyTie(String name, Map<?, ?> golden, TaskHead head) {
    Object text = golden.get("answer");
    if (!(text instanceof String) || text.equals(best.text) || !(golden.get("score") instanceof Number)) {
      return false;
    }
    if (best.text.isEmpty() || ((String) text).isEmpty()) {
      double score = ((Number) golden.get("score")).doubleValue();
      double difference = best.text.isEmpty() ? best.score - score : score - best.score;
      return head.nullThreshold != null && Math.abs(difference - head.nullThreshold) < 2 * tolerance;
    }
    boolean isPlace = name.equals("answer") || name.equals("start") || name.equals("end");
    for (Answer other : best.best) {
      boolean same =
          other.text.equals(text) && golden.get("start").equals((long) other.start)
              && golden.get("end").equals((long) other.end);
      if (isPlace && same && best.score - other.score < 2 * tolerance) {
        return true;
      }
    }
    return false;
  }

  /** Whether each span in one list alone has a token whose two best tags nearly tie. */
  private boolean spansNearlyTie(GoldenLine line, List<?> golden, List<?> spans, TaskHead head) {
    Set<List<Object>> differing = edges(golden);
    Set<List<Object>> others = edges(spans);
    Set<List<Object>> same = new HashSet<>(differing);
    same.retainAll(others);
    differing.addAll(others);
    differing.removeAll(same);
    for (List<Object> span : differing) {
      boolean uncertain = false;
      for (int row = 0; row < line.windows.size() && row < outputs.size(); row++) {
        GoldenLine.Window window = line.windows.get(row);
        String prefix = TaskHead.SEVERAL.equals(bundle.taskKind()) ? head.name + "_" : "";
        float[] logits = outputs.get(row).get(prefix + SpanFinder.OUTPUT);
        for (int token = 0; token < window.ids.length; token++) {
          int labels = head.labels.size();
          boolean inside =
              span.get(0) instanceof Long && span.get(1) instanceof Long
                  && window.offsets[token][0] < (Long) span.get(1) && window.offsets[token][1] > (Long) span.get(0);
          uncertain |= inside && margin(Arrays.copyOfRange(logits, token * labels, (token + 1) * labels)) < 2 * tolerance;
        }
      }
      if (!uncertain) {
        return false;
      }
    }
    return !differing.isEmpty();
  }

  private static Set<List<Object>> edges(List<?> spans) {
    Set<List<Object>> edges = new HashSet<>();
    for (Object span : spans) {
      Map<?, ?> values = span instanceof Map ? (Map<?, ?>) span : new LinkedHashMap<>();
      edges.add(Arrays.<Object>asList(values.get("start"), values.get("end"), values.get("label")));
    }
    return edges;
  }

  /** The difference of the two highest probabilities. */
  private static double margin(float[] logits) {
    Arrays.sort(logits);
    float largest = logits[logits.length - 1];
    double sum = 0;
    for (float logit : logits) {
      sum += Math.exp((double) logit - largest);
    }
    return (1 - Math.exp((double) logits[logits.length - 2] - largest)) / sum;
  }

  private static String shown(Object value) {
    return Description.shown(String.valueOf(value));
  }
}
