package org.pocketbert.bundle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.tokenizer.ModelInputs;
import org.pocketbert.tokenizer.TokenPositions;
import org.pocketbert.tokenizer.Tokenizer;
import org.pocketbert.tokenizer.Tokens;

/** Encodes golden texts as the network reads them, and compares ids, segments and offsets. */
final class GoldenRows {
  private final Bundle bundle;
  private final String kind;

  GoldenRows(Bundle bundle) {
    this.bundle = bundle;
    kind = bundle.hasPairs() ? SeparatePairs.HEAD : bundle.taskKind();
  }

  /** Returns how a line differs from the tokenizer's rows, one sentence without the line's name; null if it is equal. */
  String problem(GoldenLine line) {
    TokenPositions positions = new TokenPositions(bundle.tokenizer());
    List<GoldenLine.Window> windows = windows(inputs(bundle.tokenizer(), line), inputs(positions, line), positions);
    if (windows.size() != line.windows.size()) {
      return "must have " + line.windows.size() + " windows; the tokenizer gives " + windows.size();
    }
    for (int i = 0; i < windows.size(); i++) {
      GoldenLine.Window golden = line.windows.get(i);
      GoldenLine.Window window = windows.get(i);
      if (!Arrays.equals(golden.ids, window.ids)) {
        return "must have the tokenizer's ids; it has others";
      }
      // A tokenizer with one segment has no type_ids, and then all of them are 0.
      int[] types = golden.typeIds == null ? new int[golden.ids.length] : golden.typeIds;
      if (!Arrays.equals(types, window.typeIds)) {
        return "must have the tokenizer's type_ids; it has others";
      }
      if (!Arrays.deepEquals(golden.offsets, window.offsets)) {
        return "must have the tokenizer's offsets; it has others";
      }
    }
    return null;
  }

  /** Returns the inputs for each row. */
  private List<ModelInputs> inputs(Tokenizer tokenizer, GoldenLine line) {
    List<ModelInputs> rows = new ArrayList<>();
    int[] lengths = bundle.lengths();
    int longest = lengths[lengths.length - 1];
    if (SeparatePairs.HEAD.equals(kind)) {
      rows.add(tokenizer.encode(line.text, null, lengths));
      rows.add(tokenizer.encode(line.pair == null ? "" : line.pair, null, lengths));
    } else if (SentenceEmbedder.KIND.equals(kind)) {
      rows.add(SentenceEmbedder.inputs(bundle, tokenizer, line.text));
    } else if (QuestionAnswerer.KIND.equals(kind)) {
      // Rows do not depend on outputs.
      Network recording =
          inputs -> {
            rows.add(inputs);
            Map<String, float[]> outputs = new HashMap<>();
            outputs.put(QuestionAnswerer.STARTS, new float[inputs.length()]);
            outputs.put(QuestionAnswerer.ENDS, new float[inputs.length()]);
            return outputs;
          };
      new QuestionAnswerer(bundle, tokenizer, recording).answer(line.text, line.pair == null ? "" : line.pair);
    } else if (TaskKind.of(kind) != null && TaskKind.of(kind).labelsTokens) {
      Tokens tokens = tokenizer.tokenize(line.text);
      for (int[] window : SpanFinder.windows(tokens.ids.length, longest)) {
        rows.add(tokenizer.window(tokens, window[0], window[1], lengths));
      }
    } else {
      rows.add(tokenizer.encode(line.text, line.pair, lengths));
    }
    return rows;
  }

  private static List<GoldenLine.Window> windows(
      List<ModelInputs> rows, List<ModelInputs> rowsOfPositions, TokenPositions positions) {
    List<GoldenLine.Window> windows = new ArrayList<>();
    for (int row = 0; row < rows.size(); row++) {
      ModelInputs inputs = rows.get(row);
      int count = Arrays.stream(inputs.mask).sum();
      int[][] offsets = new int[count][];
      for (int i = 0; i < count; i++) {
        offsets[i] = positions.offsets(rowsOfPositions.get(row).wordIds[i]);
      }
      windows.add(
          new GoldenLine.Window(Arrays.copyOf(inputs.wordIds, count), Arrays.copyOf(inputs.typeIds, count), offsets));
    }
    return windows;
  }
}
