"""A tiny masked-LM model directory and word vectors for it, for tests of augmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tiny

SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK] [unused0]".split()
WORDS = "the a film plot actor was not very good fine great bad dull poor and of with it s don t play walk".split()
CONTINUATIONS = "##ing ##ed ##er ##ly ##s ##t ##e ##x".split()
OTHERS = ", . ' - ! 7 42".split()
# Words of several tokens: "playing" is "play" and "##ing".
MULTI_PIECE = "playing walked dullest finely".split()
PIECES = [*SPECIAL, *WORDS, *CONTINUATIONS, *OTHERS]
PIECES += [f"filler{number}" for number in range(tiny.BERT.vocab_size - len(PIECES))]
CONFIG = tiny.BERT.replace(num_layers=1, initializer_range=0.5)


def write_model(folder: Path) -> Path:
    """A model directory with random weights and a masked-LM head."""
    import pocketbert as pb

    vocabulary = folder.parent / f"{folder.name}-vocab.txt"
    vocabulary.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    tokenizer = pb.WordPieceTokenizer(vocabulary)
    pb.from_preset(CONFIG, [pb.TaskConfig(kind="masked_lm")], tokenizer=tokenizer, seed=23).save_pretrained(folder)
    return folder


def write_glove(path: Path) -> Path:
    """Vectors of 5 numbers for the words and 40 others."""
    random = np.random.default_rng(7)
    words = [*WORDS, *MULTI_PIECE, *(f"near{number}" for number in range(40))]
    lines = (f"{word} " + " ".join(f"{number:.5f}" for number in random.normal(size=5)) for word in words)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences of 1 to 12 words, some of several tokens, with punctuation."""
    random = np.random.default_rng(seed)
    return [
        " ".join(random.choice([*WORDS, *MULTI_PIECE, *OTHERS], random.integers(1, 13))).replace(" ,", ",") + " film."
        for _ in range(count)
    ]
