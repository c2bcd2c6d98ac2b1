package org.pocketbert.tokenizer;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.pocketbert.json.Json;

/** Splits texts into words for tests in Python: one JSON string per line gives one array of starts and ends. */
public final class WordsMain {
  private WordsMain() {}

  public static void main(String[] arguments) throws IOException {
    List<String> answers = new ArrayList<>();
    for (String line : Files.readAllLines(Paths.get(arguments[0]), StandardCharsets.UTF_8)) {
      TextWords words = TextWords.split((String) Json.parse(line));
      answers.add(Json.write(Arrays.asList(boxed(words.starts), boxed(words.ends))));
    }
    Files.write(Paths.get(arguments[1]), answers, StandardCharsets.UTF_8);
  }

  private static List<Integer> boxed(int[] values) {
    return Arrays.stream(values).boxed().collect(Collectors.toList());
  }
}
