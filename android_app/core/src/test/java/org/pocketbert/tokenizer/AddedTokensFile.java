package org.pocketbert.tokenizer;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.pocketbert.json.Json;

/** The added tokens beside a vocabulary in tests: {@code added.json}, a list of objects as in bundle.json. */
final class AddedTokensFile {
  private AddedTokensFile() {}

  static List<AddedToken> read(Path folder) throws IOException {
    List<AddedToken> tokens = new ArrayList<>();
    Path path = folder.resolve("added.json");
    if (Files.exists(path)) {
      for (Object entry : (List<?>) Json.parse(Files.readString(path))) {
        Map<?, ?> token = (Map<?, ?>) entry;
        tokens.add(
            new AddedToken(
                (String) token.get("content"),
                ((Number) token.get("id")).intValue(),
                (Boolean) token.get("lstrip"),
                (Boolean) token.get("rstrip"),
                (Boolean) token.get("single_word"),
                (Boolean) token.get("normalized"),
                (Boolean) token.get("special")));
      }
    }
    return tokens;
  }
}
