package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.pocketbert.UserError;

/**
 * XLM-R's sentencepiece.bpe.model: tokens with their scores, and the normalization of texts.
 *
 * <p>The file's first three tokens are {@code <unk>}, {@code <s>} and {@code </s>}. XLM-R's ids come from fairseq:
 * {@code <s>} 0, {@code <pad>} 1, {@code </s>} 2, {@code <unk>} 3. The ids of other tokens are one higher than in the
 * file, and {@code <mask>} has the last id.
 *
 * <p>Source: google/sentencepiece {@code sentencepiece_model.proto}.
 */
public final class SentencePieceModel {
  static final int BOS_ID = 0;
  static final int PAD_ID = 1;
  static final int EOS_ID = 2;
  static final int UNK_ID = 3;

  private static final List<String> FIRST = Arrays.asList(SpecialTokens.UNK, SpecialTokens.BOS, SpecialTokens.EOS);
  private static final int FAIRSEQ_OFFSET = 1;
  private static final float UNKNOWN_PENALTY = 10;
  private static final int UNIGRAM = 1;
  private static final int NORMAL = 1;
  private static final int[] FIRST_TYPES = {2, 3, 3};
  // A token needs at least eight bytes: its text, its score and their tags.
  private static final int TYPICAL_BYTES = 18;

  final TokenTrie trie;
  final CharacterMap characters;

  /** Scores by id. */
  private float[] scores;

  /** The score of a character without a token. */
  final float unknownScore;

  private final int count;
  private final List<String> problems = new ArrayList<>();

  /**
   * Reads a model.
   *
   * @throws UserError lists all problems if the file is truncated, damaged, or unlike XLM-R's
   */
  public static SentencePieceModel parse(byte[] content) {
    try {
      return new SentencePieceModel(content);
    } catch (ProtoReader.Malformed error) {
      throw new UserError(
          "sentencepiece model: it must be a complete protocol buffer; received " + content.length
              + " bytes that end early or have another format; copy the file again");
    }
  }

  private SentencePieceModel(byte[] content) throws ProtoReader.Malformed {
    ProtoReader reader = new ProtoReader(content);
    int expected = content.length / TYPICAL_BYTES;
    trie = new TokenTrie(expected);
    scores = new float[Math.max(16, expected)];
    List<String> first = new ArrayList<>();
    Faults faults = new Faults();
    boolean hasTrainer = false;
    CharacterMap map = null;
    boolean hasNormalizer = false;
    float lowest = Float.MAX_VALUE;
    int tokens = 0;
    for (int field = reader.next(); field != 0; field = reader.next()) {
      if (field == 1) {
        float score = readToken(content, reader.message(), tokens, first, faults);
        lowest = tokens < FIRST.size() ? lowest : Math.min(lowest, score);
        tokens++;
      } else if (field == 2) {
        readTrainer(reader.message());
        hasTrainer = true;
      } else if (field == 3) {
        map = readNormalizer(content, reader.message());
        hasNormalizer = true;
      } else {
        reader.skip();
      }
    }
    count = tokens;
    characters = map;
    unknownScore = lowest - UNKNOWN_PENALTY;
    if (!first.equals(FIRST)) {
      problems.clear();
      problems.add(
          "the first tokens of XLM-R's models must be <unk>, <s> and </s>; received "
              + (first.isEmpty() ? "none" : String.join(", ", first))
              + "; take the sentencepiece.bpe.model of an XLM-R model");
    } else if (!hasTrainer || !hasNormalizer) {
      problems.clear();
      problems.add(
          "it must have tokens, trainer_spec and normalizer_spec; received a file without one of them; copy the file "
              + "again");
    } else {
      faults.list(problems);
    }
    UserError.throwIfAny(problems, "sentencepiece model");
  }

  /** Invalid tokens. */
  private static final class Faults {
    int empty;
    final List<String> repeated = new ArrayList<>();
    final List<String> special = new ArrayList<>();
    final List<String> otherTypes = new ArrayList<>();

    void list(List<String> problems) {
      if (empty > 0) {
        problems.add("tokens must not be empty; received " + empty + " empty ones");
      }
      if (!repeated.isEmpty()) {
        problems.add("tokens must be unique; received again: " + Vocabulary.some(repeated));
      }
      if (!special.isEmpty()) {
        problems.add("only the first three tokens may be special; received " + Vocabulary.some(special));
      }
      if (!otherTypes.isEmpty()) {
        problems.add(
            "all tokens but the first three must be of type NORMAL; received others: " + Vocabulary.some(otherTypes));
      }
    }
  }

  /** Reads the file's next token and returns its score. */
  private float readToken(byte[] content, ProtoReader token, int index, List<String> first, Faults faults)
      throws ProtoReader.Malformed {
    ProtoReader name = null;
    float score = 0;
    long type = NORMAL;
    for (int field = token.next(); field != 0; field = token.next()) {
      if (field == 1) {
        name = token.message();
      } else if (field == 2) {
        score = token.number();
      } else if (field == 3) {
        type = token.integer();
      } else {
        token.skip();
      }
    }
    int from = name == null ? 0 : name.from();
    int to = name == null ? 0 : name.to();
    if (!Utf8.isValid(content, from, to)) {
      throw new ProtoReader.Malformed();
    }
    if (index < FIRST.size()) {
      String text = Utf8.string(content, from, to);
      first.add(type == FIRST_TYPES[index] ? text : text + " of type " + type);
      return score;
    }
    int node = trie.node(content, from, to);
    if (from == to) {
      faults.empty++;
    } else if (trie.id(node) != TokenTrie.NONE) {
      faults.repeated.add(Utf8.string(content, from, to));
    } else if (content[from] == '<' && SpecialTokens.ALL.contains(Utf8.string(content, from, to))) {
      faults.special.add(Utf8.string(content, from, to));
    }
    if (type != NORMAL) {
      faults.otherTypes.add(Utf8.string(content, from, to));
    }
    int id = index + FAIRSEQ_OFFSET;
    if (id >= scores.length) {
      scores = Arrays.copyOf(scores, 2 * id);
    }
    scores[id] = score;
    trie.setId(node, id);
    return score;
  }

  private void readTrainer(ProtoReader trainer) throws ProtoReader.Malformed {
    for (int field = trainer.next(); field != 0; field = trainer.next()) {
      if (field == 3) {
        require("trainer_spec.model_type", UNIGRAM, trainer.integer());
      } else if (field == 24) {
        require("trainer_spec.treat_whitespace_as_suffix", 0, trainer.integer());
      } else if (field == 35) {
        require("trainer_spec.byte_fallback", 0, trainer.integer());
      } else {
        trainer.skip();
      }
    }
  }

  private CharacterMap readNormalizer(byte[] content, ProtoReader normalizer) throws ProtoReader.Malformed {
    CharacterMap map = CharacterMap.read(content, 0, 0);
    for (int field = normalizer.next(); field != 0; field = normalizer.next()) {
      if (field == 2) {
        ProtoReader bytes = normalizer.message();
        map = CharacterMap.read(content, bytes.from(), bytes.to());
        if (map == null) {
          problems.add(
              "normalizer_spec.precompiled_charsmap must be a trie and its results; received "
                  + (bytes.to() - bytes.from()) + " other bytes; copy the file again");
        }
      } else if (field == 3) {
        require("normalizer_spec.add_dummy_prefix", 1, normalizer.integer());
      } else if (field == 4) {
        require("normalizer_spec.remove_extra_whitespaces", 1, normalizer.integer());
      } else if (field == 5) {
        require("normalizer_spec.escape_whitespaces", 1, normalizer.integer());
      } else {
        normalizer.skip();
      }
    }
    return map;
  }

  private void require(String setting, long required, long received) {
    if (received != required) {
      problems.add(setting + " must be " + required + "; received " + received + ", which XLM-R's models do not have");
    }
  }

  /** Returns the number of ids: the file's tokens, {@code <pad>} and {@code <mask>}. */
  public int size() {
    return count + 2;
  }

  /** Returns the id of one of {@link SpecialTokens#ALL}. */
  int specialId(String token) {
    return token.equals(SpecialTokens.MASK) ? count + FAIRSEQ_OFFSET : SpecialTokens.ALL.indexOf(token);
  }

  float score(int id) {
    return scores[id];
  }
}
