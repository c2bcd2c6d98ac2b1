"""Dynamic whole-word masking on words with several tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_pretraining

import pocketbert as pb
from pocketbert.data.pretraining.options import MaskingOptions, PretrainingOptions
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.pretraining.run import write_pretraining_data
from pocketbert.errors import UserError
from pocketbert.training.config import RunConfig
from pocketbert.training.objectives.pretraining import pretraining_stage
from pocketbert.training.pretrain import pretrain
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.stage_batches import pretraining_batches

SPECIAL = tiny_pretraining.PIECES[:5]
STEMS, ENDINGS = "play walk jump turn".split(), "##ing ##ed ##er ##s".split()


def write_words_of_pieces(folder: Path, masking: MaskingOptions | None = None) -> Path:
    """Pretraining data whose words are a stem and up to three endings."""
    random = np.random.default_rng(2)
    pieces = [*SPECIAL, *STEMS, *ENDINGS]
    vocabulary = tiny_pretraining.write_vocabulary(folder.parent / "pieces.txt", pieces)
    lines = []
    for line in range(90):
        words = [
            random.choice(STEMS) + "".join(random.choice(ENDINGS, random.integers(4))).replace("##", "")
            for _ in range(random.integers(2, 6))
        ]
        lines.append(" ".join(words) + ("\n" if line % 4 == 3 else ""))
    text = folder.parent / "pieces-text.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = PretrainingOptions(max_length=29, masking=masking)
    write_pretraining_data(text, pb.WordPieceTokenizer(vocabulary), folder, options, shards=1, workers=1)
    return folder


def words_cut(batch: dict[str, np.ndarray]) -> int:
    """Number of words with masked and unmasked tokens."""
    cut = 0
    for ids, mask, places, labels in zip(
        *(batch[f"input_{name}"] for name in ("word_ids", "mask")),
        *(batch[f"masked_lm_{name}"] for name in ("positions", "labels")),
        strict=True,
    ):
        counted = labels >= 0
        original = ids.copy()
        original[places[counted]] = labels[counted]
        words: list[set[bool]] = []
        for index in range(mask.sum()):
            # [PAD], [UNK], [CLS], [SEP] and [MASK], then the stems: whatever stands behind these begins no word.
            if original[index] < len(SPECIAL) + len(STEMS) or original[index - 1] < len(SPECIAL):
                words.append(set())
            words[-1].add(index in places[counted])
        cut += sum(len(masked) == 2 for masked in words)
    return cut


@pytest.mark.parametrize("whole_words", [False, True])
def test_option_masks_whole_words(whole_words: bool, tmp_path: Path) -> None:
    data = PretrainingData.open(write_words_of_pieces(tmp_path / "data"))
    stage = pretraining_stage(PretrainConfig(), data.max_length)
    (batch,) = pretraining_batches(stage, data, 3, whole_words=whole_words).first(1, 16)
    assert (words_cut({name: value.numpy() for name, value in batch.items()}) == 0) is whole_words


def test_baked_masks_do_not_change(tmp_path: Path) -> None:
    baked = write_words_of_pieces(tmp_path / "baked", masking=MaskingOptions())
    config = tiny_pretraining.MODEL.replace(vocab_size=len(SPECIAL) + len(STEMS) + len(ENDINGS))
    with pytest.raises(UserError, match="whole_words needs dynamic masks; .*baked has baked-in masks"):
        pretrain(
            config,
            PretrainingData.open(baked),
            tmp_path / "run",
            config=PretrainConfig(batch_size=8),
            run=RunConfig(whole_words=True),
        )
    assert not (tmp_path / "run").exists()
