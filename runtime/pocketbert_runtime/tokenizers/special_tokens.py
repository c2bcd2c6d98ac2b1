"""RoBERTa's and XLM-R's special tokens, by XLM-R's ids (MASK has the last one)."""

BOS, PAD, EOS, UNK, MASK = ROBERTA_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
