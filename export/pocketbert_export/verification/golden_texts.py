"""Choose golden examples: texts to fill each length, and texts to show the tokenizer's options."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.encoder import INPUT_NAMES
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.tokenizers.base import Tokenizer
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.goldens import Golden
from pocketbert_export.verification.default_texts import DEFAULT_TEXTS

# Golden examples are few: with very many added tokens, the first ones are tried with their flags.
_MOST_ADDED_TEXTS = 16
_MOST_SHOWN_WITH_FLAGS = 64
# In byte-level BPE and unigram, these precede tokens behind a space.
_SPACE_MARKS = "\u0120\u2581"


def chosen_goldens(model: Model, exported: Bundle, candidates: Examples, lengths: Sequence[int]) -> list[Golden]:
    """Chooses the fullest text per length, the shortest text at the longest length, and some for the tokenizer."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    encoded = tokenizer(candidates.texts, candidates.pairs, max_length=lengths[-1])
    counts = np.asarray(encoded["input_mask"]).sum(axis=1)
    indices = []
    for length in lengths:
        fitting = np.where(counts <= length, counts, -1)
        # If every text is longer than this signature, the shortest is truncated.
        indices.append((int(fitting.argmax() if fitting.max() > 0 else counts.argmin()), length))
    indices.append((int(counts.argmin()), lengths[-1]))
    chosen = [
        (candidates.texts[index], candidates.pairs[index] if candidates.pairs else None, length)
        for index, length in dict.fromkeys(indices)
    ]
    has_pairs = candidates.pairs is not None
    room = lengths[-1] - tokenizer.frame.num_special_tokens(pairs=has_pairs)
    for text in _added_token_texts(tokenizer, room // 2 if has_pairs else room):
        chosen.append((text, DEFAULT_TEXTS[3] if has_pairs else None, lengths[-1]))
    is_pair = candidates.pairs is not None or model.config.type_vocab_size > 1
    chosen.append((_tokenizer_text(tokenizer), DEFAULT_TEXTS[3] if is_pair else None, lengths[-1]))
    goldens = []
    for text, pair, length in chosen:
        one = tokenizer([text], None if pair is None else [pair], max_length=length, pad_to=length)
        inputs = {name: np.asarray(one[name]) for name in INPUT_NAMES}
        with padding_after_texts(model):
            outputs = {name: output.numpy() for name, output in model(inputs, training=False).items()}
        answers = exported.run(inputs)
        goldens.append(
            Golden(text=text, pair=pair, length=length, inputs=inputs, outputs=outputs, exported_outputs=answers)
        )
    return goldens


def _tokenizer_text(tokenizer: Tokenizer) -> str:
    """Text with capitals, accents and CJK characters in known words: any other flag changes ids."""
    tokens = (token.lstrip(_SPACE_MARKS) for token in tokenizer.vocabulary.tokens())
    word = next((token for token in tokens if re.fullmatch("[a-z]{2,}", token)), "the")
    # The acute accent is a separate character. Short lengths truncate the end.
    text = f"東京 {word.upper()} {word[0]}\u0301{word[1:]} Café Ångström, ÎLE de l'Été, GRÖSSE 大"
    # A normalizer decomposes these, and joins the spaces.
    return text if tokenizer.vocabulary.rules.has_options else f"½  {text} ﬁ"


def _added_token_texts(tokenizer: Tokenizer, room: int) -> list[str]:
    """Texts with each added token, alone, inside a word and in other case: any other flag changes ids."""
    if not tokenizer.vocabulary.added:
        return []
    tokens = [token.content for token in tokenizer.vocabulary.added]
    samples = [f" {token}  the{token}the {token.swapcase()}" for token in tokens]
    if len(tokens) > _MOST_SHOWN_WITH_FLAGS:
        samples[_MOST_SHOWN_WITH_FLAGS:] = [f" {token}" for token in tokens[_MOST_SHOWN_WITH_FLAGS:]]
    texts, used = [""], 0
    for sample, count in zip(samples, tokenizer.tokenize(samples).row_lengths().numpy().tolist(), strict=True):
        if texts[-1] and used + count > room:
            texts, used = [*texts, ""], 0
        texts[-1] += sample
        used += count
    return texts[:_MOST_ADDED_TEXTS]
