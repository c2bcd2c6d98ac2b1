"""Vocabulary trimming: what stays equal, what is kept, what is measured. The oracle is transformers' tokenizer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_mobilebert
from transformers import BertTokenizerFast

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError
from pocketbert.pruning.vocabulary import TrimResult, trim_vocabulary

# Graphs of tokenizers would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefgh"
WORDS = ["bad", "cab", "fab", "head", "##ed", "##age", "cabbage", "fade", "##es", "deed", "##head"]
# 5 special tokens, 16 characters and 11 longer tokens, the padding token not at 0.
TOKENS = [*SPECIAL[1:], "fade", SPECIAL[0], *LETTERS, *WORDS[:3], *[f"##{letter}" for letter in LETTERS], *WORDS[3:7]]
TOKENS += WORDS[8:]
REQUIRED = len(SPECIAL) + 2 * len(LETTERS)
TASKS = (TaskConfig(kind="masked_lm"), TaskConfig(kind="regression"))


def write_model(folder: Path, config: EncoderConfig = tiny.BERT, tasks: tuple[TaskConfig, ...] = TASKS) -> Path:
    vocabulary = folder.parent / "all.txt"
    vocabulary.write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    config = config.replace(vocab_size=len(TOKENS), pad_token_id=TOKENS.index("[PAD]"))
    pb.from_preset(config, tasks, pb.WordPieceTokenizer(vocabulary), seed=3).save_pretrained(folder)
    return folder


def write_text(path: Path, paragraphs: list[str]) -> Path:
    path.write_text("\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "whole", tiny.BERT.replace(num_layers=1))


def vocabulary_of(folder: Path) -> list[str]:
    return (folder / "vocab.txt").read_text("utf-8").splitlines()


@pytest.mark.one_of_each("config0", "config1")
@pytest.mark.parametrize("config", [tiny.BERT, tiny.FACTORIZED_WORD, tiny_mobilebert.STUDENT])
def test_kept_tokens_give_equal_outputs(config: EncoderConfig, tmp_path: Path) -> None:
    tasks = tiny_mobilebert.HEADS if config.model_type == "mobilebert" else TASKS
    whole = pb.from_pretrained(write_model(tmp_path / "whole", config, tasks))
    text = write_text(tmp_path / "text.txt", ["Cab head.", "Bad headed cabbage!", "faded"] * 10)
    trim_vocabulary(tmp_path / "whole", [text], tmp_path / "trimmed")
    trimmed = pb.from_pretrained(tmp_path / "trimmed")
    tokens = vocabulary_of(tmp_path / "trimmed")
    assert len(tokens) == trimmed.config.vocab_size < len(TOKENS) and "deed" not in tokens
    assert tokens == [token for token in TOKENS if token in tokens]

    texts = ["bad cab", "heads, cabbage", "headed faded xyz bee"]
    inputs = whole.tokenizer(texts, max_length=13), trimmed.tokenizer(texts, max_length=13)
    ids = [
        np.array(vocabulary)[input["input_word_ids"]]
        for vocabulary, input in zip((TOKENS, tokens), inputs, strict=True)
    ]
    np.testing.assert_array_equal(*ids)
    before, after = (network(input) for network, input in zip((whole, trimmed), inputs, strict=True))
    remaining = [TOKENS.index(token) for token in tokens]
    for name, output in before.items():
        # Outputs over the vocabulary have one column per token, the others none.
        expected = tf.gather(output, remaining, axis=-1) if output.shape[-1] == len(TOKENS) else output
        np.testing.assert_array_equal(after[name], expected, err_msg=name)
    assert trimmed.config.pad_token_id == tokens.index("[PAD]")


def test_frequency_selects_tokens(model: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", ["cab cab bad"] * 3 + ["deed cab"])
    dev_text = write_text(tmp_path / "dev_text.txt", ["deed bad"])

    def longer(**options: Any) -> list[str]:
        trim_vocabulary(model, [text], tmp_path / "out", dev_text=[dev_text], overwrite=True, **options)
        remaining = [token for token in vocabulary_of(tmp_path / "out") if token not in SPECIAL]
        return [token for token in remaining if len(token.removeprefix("##")) > 1]

    assert longer() == ["bad", "cab", "deed"]
    assert longer(min_count=3) == ["bad", "cab"]
    assert longer(keep_top=REQUIRED + 1) == ["cab"]
    # Equally frequent tokens are kept in the order of the vocabulary.
    assert longer(keep_top=REQUIRED + 4) == ["fade", "bad", "cab", "deed"]
    assert longer(keep_top=REQUIRED) == []
    keep = write_text(tmp_path / "keep.txt", ["##age"])
    assert longer(min_count=4, keep=keep) == ["cab", "##age"]


def measured_by_transformers(before: Path, after: Path, sentences: list[str]) -> dict[str, Any]:
    """The figures of a `TrimResult`, computed with transformers' tokenizer."""
    contents = []
    for folder in (before, after):
        tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
        rows = [tokenizer(sentence, add_special_tokens=False, return_offsets_mapping=True) for sentence in sentences]
        contents.append(
            [
                list(zip(tokenizer.convert_ids_to_tokens(row["input_ids"]), row["offset_mapping"], strict=True))
                for row in rows
            ]
        )
    totals = [sum(map(len, side)) for side in contents]
    unknown = [sum(token == "[UNK]" for row in side for token, _ in row) for side in contents]
    return {
        "sentences": len(sentences),
        "same_sentences": np.mean([one == other for one, other in zip(*contents, strict=True)]),
        "same_tokens": sum(len({*one} & {*other}) for one, other in zip(*contents, strict=True)) / totals[0],
        "unknown_tokens": (unknown[0] / totals[0], unknown[1] / totals[1]),
    }


def test_measurement_matches_transformers(model: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", ["cab bad headed"] * 9 + ["deed"])
    sentences = ["Deed cabbage bad.", "Cab zoo headed bad.", "Faded cab!", "Head."]
    dev_text = write_text(tmp_path / "dev_text.txt", [" ".join(sentences[:2]), " ".join(sentences[2:])])
    result = trim_vocabulary(model, [text], tmp_path / "trimmed", dev_text=[dev_text])
    expected = measured_by_transformers(model, tmp_path / "trimmed", sentences)
    actual = {name: value for name, value in dataclasses.asdict(result).items() if name in expected}
    assert actual["sentences"] == 4 and 0 < actual["same_sentences"] < 1
    assert actual == {name: pytest.approx(value) for name, value in expected.items()}
    assert result.tokens == (len(TOKENS), REQUIRED + 5)
    whole, trimmed = (pb.from_pretrained(folder) for folder in (model, tmp_path / "trimmed"))
    assert result.parameters == (whole.count_params(), trimmed.count_params())


def test_every_tenth_paragraph_is_measured(model: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", [*["cab"] * 9, "Deed. Deed."] * 2)
    result = trim_vocabulary(model, [text], tmp_path / "trimmed")
    assert (result.sentences, result.same_sentences) == (4, 0.0)
    assert "deed" not in vocabulary_of(tmp_path / "trimmed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_top": 9, "min_count": 2}, "give keep_top or min_count; received keep_top=9 and min_count=2"),
        ({"keep_top": REQUIRED - 1}, f"keep_top must be {REQUIRED} .* to {len(TOKENS)} .*; received {REQUIRED - 1}"),
        ({"keep_top": len(TOKENS) + 1}, f"received {len(TOKENS) + 1}"),
        ({"min_count": 0}, "min_count must be at least 1; received 0"),
        ({"text": []}, "text must be at least one file or folder; received none"),
        ({"keep": "keep.txt"}, "keep.txt must list tokens of the vocabulary; received 'zoo'; remove them"),
        ({"text": ["one.txt"]}, "at least 10 paragraphs of text"),
    ],
)
def test_bad_input_writes_nothing(
    options: dict[str, Any], message: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text(Path("text.txt"), ["cab"] * 10)
    write_text(Path("one.txt"), ["cab"])
    write_text(Path("keep.txt"), ["cab", "zoo"])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=message):
        trim_vocabulary(model, **{"text": ["text.txt"], **options}, output="trimmed")
    assert sorted(tmp_path.iterdir()) == before


def test_command_prints_the_result(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_text(tmp_path / "text.txt", ["cab bad"] * 20)
    arguments = ["trim-vocabulary", f"--model={model}", f"--text={text}", f"--output={tmp_path / 'trimmed'}"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert all(f'"{field.name}"' in printed for field in dataclasses.fields(TrimResult))
    written = {path.name: path.read_bytes() for path in (tmp_path / "trimmed").iterdir()}
    assert main([*arguments, "--overwrite"]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "trimmed").iterdir()} == written
    capsys.readouterr()
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
