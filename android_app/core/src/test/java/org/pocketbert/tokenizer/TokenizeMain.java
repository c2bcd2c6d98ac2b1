package org.pocketbert.tokenizer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.pocketbert.json.Json;

/**
 * Tokenizes for tests in Python: {@code TokenizeMain VOCAB LOWERCASE STRIP_ACCENTS
 * TOKENIZE_CHINESE_CHARS TOKEN_OR_TEXT INPUT OUTPUT}.
 *
 * <p>The input has one JSON string per line; the output one JSON array of ids, starts and ends.
 */
public final class TokenizeMain {
  private TokenizeMain() {}

  public static void main(String[] arguments) throws IOException {
    Vocabulary vocabulary = Vocabulary.parse(Files.readAllBytes(Paths.get(arguments[0])));
    WordPieceTokenizer tokenizer =
        new WordPieceTokenizer(
            vocabulary,
            new TokenizerOptions(
                Boolean.parseBoolean(arguments[1]),
                Boolean.parseBoolean(arguments[2]),
                Boolean.parseBoolean(arguments[3])),
            AddedTokensFile.read(Paths.get(arguments[0]).toAbsolutePath().getParent()),
            arguments[4].equals("token"));
    try (BufferedReader reader = Files.newBufferedReader(Paths.get(arguments[5]));
        PrintStream out = new PrintStream(arguments[6], StandardCharsets.US_ASCII)) {
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        Tokens tokens = tokenizer.tokenize((String) Json.parse(line));
        out.println(Json.write(Arrays.asList(boxed(tokens.ids), boxed(tokens.starts), boxed(tokens.ends))));
      }
    }
  }

  private static List<Integer> boxed(int[] values) {
    return Arrays.stream(values).boxed().collect(Collectors.toList());
  }
}
