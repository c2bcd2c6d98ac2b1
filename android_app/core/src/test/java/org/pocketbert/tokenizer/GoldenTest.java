package org.pocketbert.tokenizer;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import org.junit.Test;
import org.pocketbert.TestFiles;
import org.pocketbert.json.Json;

/** Compares with the outputs of transformers' fast tokenizer; see tests/goldens/README-wordpiece.md. */
public class GoldenTest {
  private static int[] integers(Object list) {
    return ((List<?>) list).stream().mapToInt(each -> ((Number) each).intValue()).toArray();
  }

  private static int[] integers(Object pairs, int which) {
    return ((List<?>) pairs).stream().mapToInt(pair -> integers(pair)[which]).toArray();
  }

  private static Map<?, ?> golden() throws IOException {
    return (Map<?, ?>) Json.parse(TestFiles.golden("wordpiece_uncased.json"));
  }

  private static WordPieceTokenizer uncased() throws IOException {
    byte[] content = Files.readAllBytes(TestFiles.shared("data/vocab/bert-base-uncased.vocab.txt"));
    return new WordPieceTokenizer(Vocabulary.parse(content), true, true);
  }

  @Test
  public void textsMatchRecordedIdsAndOffsets() throws IOException {
    WordPieceTokenizer tokenizer = uncased();
    List<?> cases = (List<?>) golden().get("single");
    assertEquals(337, cases.size());
    for (Object entry : cases) {
      Map<?, ?> example = (Map<?, ?>) entry;
      String text = (String) example.get("text");
      Tokens tokens = tokenizer.tokenize(text);
      assertArrayEquals(text, integers(example.get("ids")), tokens.ids);
      assertArrayEquals(text, integers(example.get("offsets"), 0), tokens.starts);
      assertArrayEquals(text, integers(example.get("offsets"), 1), tokens.ends);
    }
  }

  @Test
  public void pairsHaveTheRecordedInputs() throws IOException {
    WordPieceTokenizer tokenizer = uncased();
    List<?> cases = (List<?>) golden().get("pairs");
    assertEquals(60, cases.size());
    for (Object entry : cases) {
      Map<?, ?> example = (Map<?, ?>) entry;
      int length = ((Number) example.get("max_length")).intValue();
      ModelInputs inputs = tokenizer.encode((String) example.get("a"), (String) example.get("b"), length);
      assertArrayEquals(integers(example.get("input_ids")), inputs.wordIds);
      assertArrayEquals(integers(example.get("attention_mask")), inputs.mask);
      assertArrayEquals(integers(example.get("token_type_ids")), inputs.typeIds);
    }
  }
}
