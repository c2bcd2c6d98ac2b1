"""RoBERTa's and XLM-R's special tokens, by XLM-R's ids (MASK has the last one)."""

BOS, PAD, EOS, UNK, MASK = ROBERTA_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
# transformers' names.
ROBERTA_SPECIAL_NAMES = {
    "bos_token": BOS,
    "cls_token": BOS,
    "eos_token": EOS,
    "sep_token": EOS,
    "pad_token": PAD,
    "unk_token": UNK,
    "mask_token": MASK,
}
