"""The special tokens of RoBERTa and XLM-R, in the order of XLM-R's ids (MASK has the last one)."""

BOS, PAD, EOS, UNK, MASK = ROBERTA_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
