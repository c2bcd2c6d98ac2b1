"""Token classification. Oracles: transformers' pipeline rules written out, conlleval's rules, counts by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracles.conlleval as conlleval
import pytest
import tiny
import tiny_finetuning
import tiny_tokenizers

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.tagged_texts import plain_texts, read_tagged
from pocketbert.errors import UserError
from pocketbert.tasks.metrics import tag_results, tag_scores
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.registry import get_task
from pocketbert.tasks.tagged_rows import TaggedRows
from pocketbert.tasks.token_classification import TokenClassification

VOCABULARY = [*tiny_finetuning.SPECIAL, *"new york ##er ##s lives in un ##aff ##able a b c d e f g h . , ü".split()]
TASK = TaskConfig(kind="token_classification", labels=("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), dropout=0.2)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    # Letters keep their accents, as ü is in the vocabulary.
    return pb.WordPieceTokenizer(path, lowercase=True, strip_accents=False)


def task_of(*labels: str) -> TokenClassification:
    task = get_task(TaskConfig(kind="token_classification", labels=labels or TASK.labels))
    assert isinstance(task, TokenClassification)
    return task


def conll(path: Path, *sentences: str) -> Any:
    """Sentences of `word/tag` pairs."""
    lines = ["".join(word.replace("/", "\t") + "\n" for word in sentence.split()) for sentence in sentences]
    path.write_text("\n".join(lines), encoding="utf-8")
    return read_tagged(path)


def outputs_of(rows: TaggedRows, tags: dict[str, str]) -> dict[str, np.ndarray]:
    """Logits that give each token of `tags` its tag, and all others `O`."""
    labels = rows._task.config.labels
    expected_ids = [labels.index(tags.get(VOCABULARY[id], "O")) for id in rows.encoded.word_ids]
    return {"token_logits": np.eye(len(labels), dtype=np.float32)[expected_ids]}


def test_first_token_carries_the_label(tokenizer: Any, tmp_path: Path) -> None:
    data = conll(tmp_path / "a.conll", "New/B-LOC Yorkers/I-LOC lives/O", "unaffable/B-PER")
    encoded = task_of().encode(data, tokenizer, 9)
    words = " ".join(VOCABULARY[id] for id in encoded.word_ids)
    assert words == "[CLS] new york ##er ##s lives [SEP] [CLS] un ##aff ##able [SEP]"
    assert encoded.lengths.tolist() == [7, 5]
    assert encoded.labels is not None
    assert encoded.labels.tolist() == [[-1, 1, 2, -1, -1, 0, -1, -1, -1], [-1, 3, *[-1] * 7]]


@pytest.mark.parametrize("stride", [None, 1, 2, 3, 100])
def test_each_word_has_one_window(stride: int | None, tokenizer: Any, tmp_path: Path) -> None:
    data = conll(
        tmp_path / "a.conll", " ".join(f"{letter}/O" for letter in "abcdefgh" * 3), "a/B-LOC", "unaffable/O " * 5
    )
    rows = task_of().rows(data, tokenizer, 8, stride=stride)
    assert rows.encoded.lengths.max() == 8
    ids = [VOCABULARY[id] for id in rows.encoded.word_ids[rows.decided]]
    assert ids == [*"abcdefgh" * 3, "a", *["un"] * 5]
    labels = rows.labelled_rows().labels
    assert labels is not None and (labels >= 0).sum() == len(ids) and (labels == 1).sum() == 1
    # A window away from both ends of the text gives no label to its first or last token, unless windows do not overlap.
    if stride in (1, 2):
        inner = labels[3, 1:7]
        assert inner[0] == inner[-1] == -1 and (inner == 0).any()


def test_offsets_count_code_points(tokenizer: Any) -> None:
    texts = ["🙂🙂 in  New York, a", "Ü lives .", ""]
    data = plain_texts(texts, "here")
    rows = task_of().rows(data, tokenizer, 12)
    spans = rows.spans(outputs_of(rows, {"new": "B-LOC", "york": "I-LOC", "ü": "B-PER", ",": "B-PER"}))
    (town, comma), (person,), nothing = spans
    assert (town["text"], town["start"], town["end"], town["label"]) == ("New York", 7, 15, "LOC")
    assert (comma["start"], comma["end"]) == (15, 16) and nothing == []
    assert (person["text"], person["start"], person["end"]) == ("Ü", 0, 1)
    # Softmax of one logit of 1 among 5.
    assert town["probability"] == pytest.approx(np.e / (np.e + 4), abs=1e-6)


def test_examples_without_labels_are_read(tokenizer: Any) -> None:
    rows = task_of().rows(Examples(["new york", "a"], None, None, ["0", "1"], "here"), tokenizer, 8)
    assert len(rows) == 2 and rows.decided.tolist() == [1, 2, 5]


def test_dropped_characters_start_no_token(tokenizer: Any) -> None:
    rows = task_of().rows(plain_texts(["\u200bnew \u200b york"], "here"), tokenizer, 8)
    assert rows.decided.tolist() == [1, 2]
    (spans,) = rows.spans(outputs_of(rows, {"new": "B-LOC", "york": "I-LOC"}))
    # A word without tokens has no tag, so it ends a span.
    assert [(span["start"], span["end"]) for span in spans] == [(0, 4), (7, 11)]


@pytest.mark.parametrize("kind", ["byte_bpe", "unigram"])
def test_other_tokenizers_have_a_first_token(kind: str, tmp_path: Path) -> None:
    if kind == "byte_bpe":
        tokenizer: Any = pb.ByteBPETokenizer(*tiny_tokenizers.byte_bpe_files(tmp_path))
    else:
        tokenizer = pb.UnigramTokenizer(tiny_tokenizers.unigram_file(tmp_path))
    text = " Zürich and  Bonn, in Häuser ."
    rows = task_of().rows(plain_texts([text], "here"), tokenizer, 64)
    tokens = tokenizer.tokenize_with_offsets([text])
    # A row starts with <s>.
    starts = tokens.starts.values.numpy()[rows.decided - 1]
    assert [text[start:].split()[0] for start in starts] == ["Zürich", "and", "Bonn,", ",", "in", "Häuser", "."]


@pytest.mark.parametrize(
    ("labels", "tags"),
    [
        (("O", "B-LOC", "I-LOC"), {"new": "B-LOC", "york": "I-LOC", "a": "B-LOC", "b": "B-LOC"}),
        (("I-LOC", "B-LOC", "O"), {"new": "I-LOC", "york": "I-LOC", "a": "I-LOC", "b": "B-LOC"}),
        (
            ("O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"),
            {"new": "B-LOC", "york": "E-LOC", "a": "S-LOC", "b": "S-LOC"},
        ),
    ],
    ids=["IOB2", "IOB1", "BIOES"],
)
def test_models_of_each_scheme_score(
    labels: tuple[str, ...], tags: dict[str, str], tokenizer: Any, tmp_path: Path
) -> None:
    data = conll(tmp_path / "a.conll", "New/B-LOC York/I-LOC lives/O", "a/B-LOC b/B-LOC ./O")
    task = task_of(*labels)
    assert task.types == ["LOC"]
    rows = task.rows(data, tokenizer, 9)
    right = outputs_of(rows, tags)
    assert rows.score(right, "f1")[0] == rows.score(right, "accuracy")[0] == 1
    # One of three spans is lost and one is wrong.
    wrong = outputs_of(rows, {**tags, "a": "O", ".": tags["b"]})
    assert rows.score(wrong, "precision")[0] == pytest.approx(2 / 3)
    assert rows.score(wrong, "recall")[0] == pytest.approx(2 / 3)
    assert rows.score(wrong, "f1")[1].tolist() == [1, 0]  # type: ignore[union-attr]


def test_labels_without_prefix_are_types(tokenizer: Any) -> None:
    task = task_of("O", "LOC", "PER")
    rows = task.rows(plain_texts(["new york a b"], "here"), tokenizer, 9)
    (spans,) = rows.spans(outputs_of(rows, {"new": "LOC", "york": "LOC", "a": "PER"}))
    assert [(span["text"], span["label"]) for span in spans] == [("new york", "LOC"), ("a", "PER")]


def test_training_needs_iob2_labels(tokenizer: Any, tmp_path: Path) -> None:
    data = conll(tmp_path / "a.conll", "a/B-LOC")
    with pytest.raises(UserError, match="the labels must be IOB2 tags; the model's labels O, I-LOC lack B-LOC"):
        task_of("O", "I-LOC").encode(data, tokenizer, 9)


def test_scores_of_conlleval_by_hand() -> None:
    gold = [["B-A", "I-A", "O", "B-B"], ["B-A", "O"], ["O", "O", "O"]]
    tagged = [["B-A", "I-A", "O", "B-A"], ["B-A", "I-A"], ["O", "B-B", "O"]]
    # One of four predicted spans is right, of three.
    expected = {"f1": 2 / 7, "precision": 1 / 4, "recall": 1 / 3, "accuracy": 6 / 9}
    assert tag_scores([*expected], gold, tagged) == pytest.approx(expected)
    by_label = tag_results(gold, tagged)["by_label"]
    assert by_label["A"] == pytest.approx({"precision": 1 / 3, "recall": 1 / 2, "f1": 0.4, "support": 2})
    assert by_label["B"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}
    nothing = [["O"] * len(tags) for tags in gold]
    assert tag_scores(["f1", "accuracy"], gold, nothing) == pytest.approx({"f1": 0, "accuracy": 5 / 9})
    assert tag_scores(["f1"], nothing, nothing) == {"f1": 0} and tag_results(nothing, nothing) == {"by_label": {}}


def test_random_tags_score_as_in_conlleval() -> None:
    generator = np.random.default_rng(6)
    tags = ["O", *(f"{prefix}-{kind}" for kind in ("A", "B", "C") for prefix in "BI")]
    for _ in range(60):
        lengths = generator.integers(1, 13, size=7)
        # No scheme allows most of them; a third of the tags differs.
        gold = [[str(tag) for tag in generator.choice(tags, length)] for length in lengths]
        tagged = [
            [tag if generator.random() < 0.67 else str(generator.choice(tags)) for tag in sentence] for sentence in gold
        ]
        expected = conlleval.scores(gold, tagged)
        everything = expected.pop("")
        assert tag_scores([*everything], gold, tagged) == pytest.approx(everything)
        by_label = tag_results(gold, tagged)["by_label"]
        assert by_label.keys() == expected.keys()
        for kind, values in expected.items():
            assert {name: by_label[kind][name] for name in values} == pytest.approx(values)


def test_two_heads_of_one_name_are_stored(tmp_path: Path) -> None:
    tasks = (TaskConfig(kind="classification", labels=("no", "yes")), TASK)
    model = pb.from_preset(tiny.BERT.replace(num_layers=1), tasks, seed=1)
    model.save_pretrained(tmp_path / "model")
    again = pb.from_pretrained(tmp_path / "model")
    assert again.tasks == tasks
    for path, variable in model.weights_by_path().items():
        np.testing.assert_array_equal(again.weights_by_path()[path], variable, err_msg=path)


def test_pairs_are_refused(tokenizer: Any) -> None:
    predictor = model_predictor(
        pb.from_preset(tiny.BERT.replace(num_layers=1), [TASK], tokenizer=tokenizer, seed=1), max_length=9
    )
    with pytest.raises(UserError, match="inputs must be texts; received a pair"):
        predictor.predict([("a", "b")])
    with pytest.raises(UserError, match="logits need a task with one answer per text"):
        predictor.logits(["a"])


def spans_by_tokens(tokenizer: Any, text: str, tags: list[str]) -> list[tuple[str, str]]:
    """The spans of a text from a tag for each of its tokens."""
    labels = list(TASK.labels)

    def forward(encoded: Any, **_: Any) -> Any:
        assert len(encoded.word_ids) == len(tags) + 2
        return {"token_logits": np.eye(len(labels), dtype=np.float32)[[0, *map(labels.index, tags), 0]]}

    (answer,) = task_of().predict([text], forward, tokenizer, 64)
    for span in answer["spans"]:
        assert text[span["start"] : span["end"]] == span["text"] and 0.2 < span["probability"] <= 1
    return [(span["text"], span["label"]) for span in answer["spans"]]


def test_japanese_runs_have_several_spans(tmp_path: Path) -> None:
    """C13 of the users' reports: a run of kana is one word for BERT's tokenizer."""
    pieces = "マリア ##は ##トヨタ ##の ##山 山 new ##ly".split()
    (tmp_path / "vocab.txt").write_text("\n".join([*tiny_finetuning.SPECIAL, *pieces]), "utf-8")
    tokenizer = pb.WordPieceTokenizer(tmp_path / "vocab.txt", strip_accents=False)
    text = "マリアはトヨタの山"
    tags = ["B-PER", "O", "B-LOC", "I-LOC", "O"]
    assert [len(row) for row in tokenizer.tokenize([text]).to_list()] == [5]
    assert spans_by_tokens(tokenizer, text, tags) == [("マリア", "PER"), ("トヨタの", "LOC")]
    assert spans_by_tokens(tokenizer, text, ["B-PER"] + ["O"] * 4) == [("マリア", "PER")]
    assert spans_by_tokens(tokenizer, text, ["O", "O", "B-PER", "B-PER", "O"]) == [("トヨタ", "PER"), ("の", "PER")]
    # With spaces between words, their first tokens count as before.
    assert spans_by_tokens(tokenizer, "newly new", ["B-LOC", "O", "I-LOC"]) == [("newly new", "LOC")]
    assert spans_by_tokens(tokenizer, "newly new", ["O", "B-LOC", "O"]) == []


def test_thai_tokens_have_own_tags(tmp_path: Path) -> None:
    tokenizer = pb.UnigramTokenizer(tiny_tokenizers.unigram_file(tmp_path, vocab_size=300))
    text = "ไทยไทย"
    columns = tokenizer.tokenize_with_offsets([text])
    starts, ends = columns.starts.to_list()[0], columns.ends.to_list()[0]
    # The first one is the space before the text.
    assert len(starts) > 4 and starts[:2] == ends[:1] + starts[:1]
    tags = ["O"] * len(starts)
    tags[2:4] = ["B-LOC", "I-LOC"]
    (span,) = spans_by_tokens(tokenizer, text, tags)
    assert span == (text[starts[2] : ends[3]], "LOC")


def test_jsonl_spans_inside_runs_are_kept(tokenizer: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "マリアはトヨタ", "spans": [[0, 3, "PER"], [4, 7, "LOC"]]}\n', "utf-8")
    data = read_tagged(path)
    assert data.tags == [["B-PER", "I-PER", "I-PER", "O", "B-LOC", "I-LOC", "I-LOC"]]
    assert "extended" not in capfd.readouterr().err


def test_gate_compares_tokens_of_runs(tmp_path: Path) -> None:
    pieces = "マリア ##は ##トヨタ".split()
    (tmp_path / "vocab.txt").write_text("\n".join([*tiny_finetuning.SPECIAL, *pieces]), "utf-8")
    tokenizer = pb.WordPieceTokenizer(tmp_path / "vocab.txt", strip_accents=False)
    rows = task_of().rows(plain_texts(["マリアはトヨタ"], "texts"), tokenizer, 16)
    assert rows.decided.tolist() == [1, 2, 3]
