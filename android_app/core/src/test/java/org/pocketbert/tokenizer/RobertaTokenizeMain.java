package org.pocketbert.tokenizer;

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.pocketbert.json.Json;

/**
 * Tokenizes for tests in Python: {@code RobertaTokenizeMain FOLDER TOKEN_OR_TEXT INPUT OUTPUT}.
 *
 * <p>The folder has a vocab.json and a merges.txt, a sentencepiece model, or an uncased vocab.txt; a file {@code
 * truncation} has that of the tokenizer, a file {@code layout} its layout. The input has one JSON string per
 * line; the output one JSON array of ids, starts and ends. An input line [text, pair, length] gives the model's inputs.
 * {@code RobertaTokenizeMain FOLDER speed INPUT} prints how long loading and tokenizing the input's texts take.
 */
public final class RobertaTokenizeMain {
  private static final int WARM_UP = 300;
  private static final int TIMED = 51;

  private RobertaTokenizeMain() {}

  public static void main(String[] arguments) throws IOException {
    Path folder = Paths.get(arguments[0]);
    long start = System.nanoTime();
    Tokenizer tokenizer = load(folder, !arguments[1].equals("text"));
    double milliseconds = (System.nanoTime() - start) / 1e6;
    if (arguments[1].equals("speed")) {
      System.out.printf("load %d tokens: %.0f ms%n", tokenizer.vocabSize(), milliseconds);
      for (String line : Files.readAllLines(Paths.get(arguments[2]))) {
        time(tokenizer, (String) Json.parse(line));
      }
      return;
    }
    try (BufferedReader reader = Files.newBufferedReader(Paths.get(arguments[2]));
        PrintStream out =
            new PrintStream(
                new BufferedOutputStream(Files.newOutputStream(Paths.get(arguments[3]))), false, "US-ASCII")) {
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        Object given = Json.parse(line);
        if (given instanceof String) {
          Tokens tokens = tokenizer.tokenize((String) given);
          print(out, tokens.ids, tokens.starts, tokens.ends);
        } else {
          List<?> parts = (List<?>) given;
          int length = ((Number) parts.get(2)).intValue();
          ModelInputs inputs = tokenizer.encode((String) parts.get(0), (String) parts.get(1), length);
          print(out, inputs.wordIds, inputs.mask, inputs.typeIds);
        }
      }
    }
  }

  private static Tokenizer load(Path folder, boolean specialTokensInText) throws IOException {
    Tokenizer tokenizer = open(folder, specialTokensInText);
    Path truncation = folder.resolve("truncation");
    if (!Files.exists(truncation)) {
      return tokenizer;
    }
    return tokenizer.cutting(Truncation.parse(new String(Files.readAllBytes(truncation), StandardCharsets.US_ASCII)));
  }

  private static Tokenizer open(Path folder, boolean specialTokensInText) throws IOException {
    if (Files.exists(folder.resolve("vocab.txt"))) {
      Vocabulary vocabulary = Vocabulary.parse(Files.readAllBytes(folder.resolve("vocab.txt")));
      return new WordPieceTokenizer(vocabulary, true, specialTokensInText);
    }
    if (Files.exists(folder.resolve("vocab.json"))) {
      return new ByteBpeTokenizer(
          ByteBpeVocabulary.parse(
              Files.readAllBytes(folder.resolve("vocab.json")),
              Files.readAllBytes(folder.resolve("merges.txt")),
              ByteBpeLayout.valueOf(layout(folder))),
          AddedTokensFile.read(folder),
          Files.exists(folder.resolve("add_prefix_space")),
          specialTokensInText);
    }
    UnigramLayout layout = UnigramLayout.valueOf(layout(folder));
    Path model = folder.resolve(layout.file);
    return new UnigramTokenizer(
        SentencePieceModel.parse(Files.readAllBytes(model), layout),
        AddedTokensFile.read(folder),
        Files.exists(folder.resolve("keeps_space")),
        specialTokensInText);
  }

  private static String layout(Path folder) throws IOException {
    Path named = folder.resolve("layout");
    if (!Files.exists(named)) {
      return "XLM_R";
    }
    String word = new String(Files.readAllBytes(named), StandardCharsets.US_ASCII);
    return word.toUpperCase(Locale.ROOT);
  }

  private static void time(Tokenizer tokenizer, String text) {
    long[] times = new long[TIMED];
    for (int i = -WARM_UP; i < TIMED; i++) {
      long start = System.nanoTime();
      tokenizer.tokenize(text);
      if (i >= 0) {
        times[i] = System.nanoTime() - start;
      }
    }
    Arrays.sort(times);
    System.out.printf("%d characters: %.2f ms%n", text.codePointCount(0, text.length()), times[TIMED / 2] / 1e6);
  }

  private static void print(PrintStream out, int[]... arrays) {
    StringBuilder line = new StringBuilder();
    for (int[] array : arrays) {
      line.append(line.length() == 0 ? '[' : ',').append('[');
      for (int i = 0; i < array.length; i++) {
        line.append(i == 0 ? "" : ",").append(array[i]);
      }
      line.append(']');
    }
    out.println(line.append(']'));
  }
}
