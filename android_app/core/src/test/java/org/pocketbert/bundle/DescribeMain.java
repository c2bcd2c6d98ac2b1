package org.pocketbert.bundle;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.pocketbert.UserError;
import org.pocketbert.json.Json;

/** For tests in Python: reads one bundle.json per line, and writes its problems on one line. */
public final class DescribeMain {
  private DescribeMain() {}

  public static void main(String[] arguments) throws IOException {
    List<String> answers = new ArrayList<>();
    for (String line : Files.readAllLines(Paths.get(arguments[0]), StandardCharsets.UTF_8)) {
      try {
        Description.parse(Json.parse(line), "bundle.json");
        answers.add("ok");
      } catch (UserError error) {
        answers.add(error.getMessage());
      }
    }
    Files.write(Paths.get(arguments[1]), answers, StandardCharsets.UTF_8);
  }
}
