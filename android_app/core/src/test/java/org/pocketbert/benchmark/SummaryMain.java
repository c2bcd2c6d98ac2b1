package org.pocketbert.benchmark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.pocketbert.json.Json;

/** For the tests on the Python side: lists of latencies from one file, their summaries into another. */
public final class SummaryMain {
  private SummaryMain() {}

  public static void main(String[] arguments) throws IOException {
    List<Object> summaries = new ArrayList<>();
    for (Object samples : (List<?>) Json.parse(new String(Files.readAllBytes(Paths.get(arguments[0])), "UTF-8"))) {
      double[] values =
          ((List<?>) samples).stream().mapToDouble(each -> ((Number) each).doubleValue()).toArray();
      summaries.add(Statistics.summary(values));
    }
    Files.write(Paths.get(arguments[1]), Json.write(summaries).getBytes("UTF-8"));
  }
}
