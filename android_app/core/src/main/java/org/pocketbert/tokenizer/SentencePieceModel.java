package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.pocketbert.UserError;

/**
 * A sentencepiece model: tokens with their scores, and the normalization of texts. A {@link UnigramLayout} has the ids.
 *
 * <p>Source: google/sentencepiece {@code sentencepiece_model.proto}.
 */
public final class SentencePieceModel {
  private static final float UNKNOWN_PENALTY = 10;
  // A user-defined token has the highest score for each of its bytes, less this.
  private static final float USER_DEFINED_PENALTY = 0.1f;
  private static final int UNIGRAM = 1;
  private static final int NORMAL = 1;
  private static final int USER_DEFINED = 4;
  // A token needs at least eight bytes: its text, its score and their tags.
  private static final int TYPICAL_BYTES = 18;

  final UnigramLayout layout;
  final TokenTrie trie;
  final CharacterMap characters;
  final int unknownId;

  /** Scores by id. */
  private float[] scores;

  /** The score of a character without a token. */
  final float unknownScore;

  private final int count;
  private final List<byte[]> userDefined = new ArrayList<>();
  private final List<Integer> userDefinedIds = new ArrayList<>();
  private final List<String> problems = new ArrayList<>();

  /**
   * Reads XLM-R's model.
   *
   * @throws UserError see the other method
   */
  public static SentencePieceModel parse(byte[] content) {
    return parse(content, UnigramLayout.XLM_R);
  }

  /**
   * Reads a model.
   *
   * @throws UserError lists all problems if the file is truncated, damaged, or of another layout
   */
  public static SentencePieceModel parse(byte[] content, UnigramLayout layout) {
    try {
      return new SentencePieceModel(content, layout);
    } catch (ProtoReader.Malformed error) {
      throw new UserError(
          "sentencepiece model: it must be a complete protocol buffer; received " + content.length
              + " bytes that end early or have another format; copy the file again");
    }
  }

  private SentencePieceModel(byte[] content, UnigramLayout layout) throws ProtoReader.Malformed {
    this.layout = layout;
    unknownId = layout.leading.indexOf(layout.unknown());
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
    float highest = -Float.MAX_VALUE;
    int tokens = 0;
    for (int field = reader.next(); field != 0; field = reader.next()) {
      if (field == 1) {
        int special = userDefined.size();
        float score = readToken(content, reader.message(), tokens, first, faults);
        if (tokens >= layout.first.size() && userDefined.size() == special) {
          lowest = Math.min(lowest, score);
          highest = Math.max(highest, score);
        }
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
    characters = map == null ? null : map.keeping(userDefined);
    for (int i = 0; i < userDefined.size(); i++) {
      scores[userDefinedIds.get(i)] = userDefined.get(i).length * highest - USER_DEFINED_PENALTY;
    }
    unknownScore = lowest - UNKNOWN_PENALTY;
    if (!first.equals(layout.first)) {
      int last = layout.first.size() - 1;
      problems.clear();
      problems.add(
          "the first tokens of " + layout.title + "'s models must be "
              + String.join(", ", layout.first.subList(0, last)) + " and " + layout.first.get(last) + "; received "
              + (first.isEmpty() ? "none" : String.join(", ", first)) + "; take the " + layout.file
              + " of a model of this family");
    } else if (!hasTrainer || !hasNormalizer) {
      problems.clear();
      problems.add(
          "it must have tokens, trainer_spec and normalizer_spec; received a file without one of them; copy the file "
              + "again");
    } else {
      faults.list(layout, problems);
    }
    UserError.throwIfAny(problems, "sentencepiece model");
  }

  /** Invalid tokens. */
  private static final class Faults {
    int empty;
    final List<String> repeated = new ArrayList<>();
    final List<String> special = new ArrayList<>();
    final List<String> otherTypes = new ArrayList<>();

    void list(UnigramLayout layout, List<String> problems) {
      if (empty > 0) {
        problems.add("tokens must not be empty; received " + empty + " empty ones");
      }
      if (!repeated.isEmpty()) {
        problems.add("tokens must be unique; received again: " + Vocabulary.some(repeated));
      }
      if (!special.isEmpty()) {
        problems.add(
            "only the first " + layout.first.size() + " tokens may be special; received " + Vocabulary.some(special));
      }
      if (!otherTypes.isEmpty()) {
        problems.add(
            "all tokens but the first " + layout.first.size() + " must be of type NORMAL"
                + (layout.hasUserDefined() ? " or USER_DEFINED" : "") + "; received others: "
                + Vocabulary.some(otherTypes));
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
    if (index < layout.first.size()) {
      String text = Utf8.string(content, from, to);
      first.add(type == layout.firstType(index) ? text : text + " of type " + type);
      return score;
    }
    int node = trie.node(content, from, to);
    if (from == to) {
      faults.empty++;
    } else if (trie.id(node) != TokenTrie.NONE) {
      faults.repeated.add(Utf8.string(content, from, to));
    } else if ((content[from] == '<' || content[from] == '[')
        && layout.special().contains(Utf8.string(content, from, to))) {
      faults.special.add(Utf8.string(content, from, to));
    }
    int id = index + layout.offset();
    if (type == USER_DEFINED && layout.hasUserDefined()) {
      userDefined.add(Arrays.copyOfRange(content, from, to));
      userDefinedIds.add(id);
    } else if (type != NORMAL) {
      faults.otherTypes.add(Utf8.string(content, from, to));
    }
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
      problems.add(setting + " must be " + required + "; received " + received + ", which " + layout.title
          + "'s models do not have");
    }
  }

  /** Returns the number of ids. */
  public int size() {
    return count + layout.offset() + (layout.hasMaskLast() ? 1 : 0);
  }

  /** Returns the special tokens with their usual flags. */
  List<AddedToken> special() {
    List<AddedToken> tokens = new ArrayList<>();
    List<String> contents = layout.special();
    for (int i = 0; i < contents.size(); i++) {
      int id = i < layout.leading.size() ? i : size() - 1;
      tokens.add(AddedToken.special(contents.get(i), id, layout.takesSpace(contents.get(i))));
    }
    return tokens;
  }

  float score(int id) {
    return scores[id];
  }

  /** Returns the id of the token with some code points, or that of the unknown token. */
  int id(int[] codes, int from, int to) {
    int node = TokenTrie.ROOT;
    for (int i = from; i < to && node != TokenTrie.NONE; i++) {
      node = trie.next(node, codes[i]);
    }
    int id = node == TokenTrie.NONE ? TokenTrie.NONE : trie.id(node);
    return id == TokenTrie.NONE ? unknownId : id;
  }
}
