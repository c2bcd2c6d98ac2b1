package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** Which ids a family gives to the tokens of a sentencepiece model, and which of them are special; as in Python. */
public enum UnigramLayout {
  /** XLM-R: {@code <s>} 0, {@code <pad>} 1, {@code </s>} 2, {@code <unk>} 3, then the file's others, {@code <mask>}. */
  XLM_R(
      "XLM-R",
      "sentencepiece.bpe.model",
      Arrays.asList("<unk>", "<s>", "</s>"),
      Arrays.asList("<s>", "<pad>", "</s>", "<unk>"),
      3),
  /** CamemBERT: {@code <pad>} 1, {@code <unk>} 3, {@code <s>} 5, {@code </s>} 6, the file's others, {@code <mask>}. */
  CAMEMBERT(
      "CamemBERT",
      "sentencepiece.bpe.model",
      Arrays.asList("<unk>", "<s>", "</s>"),
      Arrays.asList("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
      1),
  /** ALBERT, English: the ids of the file. */
  ALBERT(
      "ALBERT",
      "spiece.model",
      Arrays.asList("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
      Collections.emptyList(),
      0),
  /** DeBERTa-v3: the ids of the file, and {@code [MASK]} behind them. */
  DEBERTA(
      "DeBERTa-v3",
      "spm.model",
      Arrays.asList("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
      Collections.emptyList(),
      0);

  private static final int UNKNOWN = 2;
  private static final int CONTROL = 3;

  /** The family, for messages. */
  final String title;

  /** The file's usual name. */
  public final String file;

  /** The file's first tokens. */
  final List<String> first;

  /** The tokens with the first ids, before those that texts consist of. */
  final List<String> leading;

  /**
   * Describes a layout.
   *
   * @param before tokens with the first ids
   * @param replaced how many of the file's first tokens have no id of their own; those of the others follow
   */
  UnigramLayout(String title, String file, List<String> first, List<String> before, int replaced) {
    this.title = title;
    this.file = file;
    this.first = first;
    leading = new ArrayList<>(before);
    leading.addAll(first.subList(replaced, first.size()));
  }

  /** The spelling in bundle.json. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** The difference between a token's id and its place in the file. */
  int offset() {
    return leading.size() - first.size();
  }

  /** Whether the special tokens have BERT's names, and the second text has a segment of its own. */
  private boolean isLikeBert() {
    return this == ALBERT || this == DEBERTA;
  }

  /** Whether the mask token follows the file's tokens. */
  boolean hasMaskLast() {
    return this != ALBERT;
  }

  /** Whether texts are cleaned first, and numbers with a comma split again. */
  boolean cleansText() {
    return this == ALBERT;
  }

  /** Whether user-defined tokens may follow the first ones. */
  boolean hasUserDefined() {
    return isLikeBert();
  }

  /** The type that one of the file's first tokens must have. */
  int firstType(int index) {
    return first.get(index).equals(unknown()) ? UNKNOWN : CONTROL;
  }

  /** The token for characters without a token. */
  String unknown() {
    return this == DEBERTA ? "[UNK]" : SpecialTokens.UNK;
  }

  String mask() {
    return isLikeBert() ? "[MASK]" : SpecialTokens.MASK;
  }

  /** All special tokens by id. */
  List<String> special() {
    List<String> tokens = new ArrayList<>(leading);
    if (hasMaskLast()) {
      tokens.add(mask());
    }
    return tokens;
  }

  /** The special tokens around texts. */
  Frame frame() {
    int pad = leading.indexOf(this == DEBERTA ? "[PAD]" : SpecialTokens.PAD);
    if (isLikeBert()) {
      return new Frame(leading.indexOf("[CLS]"), leading.indexOf("[SEP]"), pad, 1, 1);
    }
    return Frame.roberta(leading.indexOf(SpecialTokens.BOS), leading.indexOf(SpecialTokens.EOS), pad);
  }

  /** Whether a special token includes the white space before it. */
  boolean takesSpace(String token) {
    return token.equals(mask()) && this != DEBERTA;
  }
}
