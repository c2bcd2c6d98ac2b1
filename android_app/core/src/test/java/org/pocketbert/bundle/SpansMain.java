package org.pocketbert.bundle;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.json.Json;

/**
 * Finds spans for tests in Python: {@code SpansMain BUNDLE INPUT OUTPUT}.
 *
 * <p>A line of the input has a text and its windows, each with ids and the logits of the model. The windows must be those
 * of {@link SpanFinder}. A line of the output has the spans.
 */
public final class SpansMain {
  private SpansMain() {}

  public static void main(String[] arguments) throws IOException {
    Bundle bundle = Bundle.open(Paths.get(arguments[0]));
    List<String> answers = new ArrayList<>();
    for (String line : Files.readAllLines(Paths.get(arguments[1]), StandardCharsets.UTF_8)) {
      Map<?, ?> row = (Map<?, ?>) Json.parse(line);
      Iterator<?> windows = ((List<?>) row.get("windows")).iterator();
      List<Object> spans = new ArrayList<>();
      Network network =
          inputs -> {
            Map<?, ?> window = (Map<?, ?>) windows.next();
            List<Long> ids = new ArrayList<>();
            for (int id : inputs.wordIds) {
              ids.add((long) id);
            }
            if (!ids.equals(window.get("ids"))) {
              throw new AssertionError("the ids are " + ids + " instead of " + window.get("ids"));
            }
            return Collections.singletonMap(SpanFinder.OUTPUT, floats((List<?>) window.get("logits")));
          };
      for (LabelledSpan span : new SpanFinder(bundle, network).find((String) row.get("text"))) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("text", span.text);
        found.put("label", span.label);
        found.put("start", span.start);
        found.put("end", span.end);
        found.put("probability", span.probability);
        spans.add(found);
      }
      answers.add(Json.write(spans));
    }
    Files.write(Paths.get(arguments[2]), answers, StandardCharsets.UTF_8);
  }

  private static float[] floats(List<?> numbers) {
    float[] values = new float[numbers.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] = ((Number) numbers.get(i)).floatValue();
    }
    return values;
  }
}
