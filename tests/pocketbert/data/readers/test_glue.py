from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pocketbert.data.readers.glue import GLUE, read_glue
from pocketbert.errors import UserError
from pocketbert.tasks.metrics import METRICS


def _write(folder: Path, name: str, text: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_the_table_is_glues() -> None:
    assert list(GLUE) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
    for name, glue in GLUE.items():
        assert glue.task.name == name
        assert glue.main_metric in glue.metrics and set(glue.metrics) <= set(METRICS)
        assert set(glue.label_texts.values()) in (set(), set(glue.task.labels))
    # As the fine-tuned models on the Hugging Face hub number them.
    assert GLUE["mnli"].task.labels == ("entailment", "neutral", "contradiction")
    assert GLUE["rte"].task.labels == GLUE["qnli"].task.labels == ("entailment", "not_entailment")
    assert GLUE["wnli"].task.labels == ("not_entailment", "entailment")


def test_mnli(fixtures: Path) -> None:
    train = read_glue("mnli", fixtures / "glue", "train")
    assert train.labels is not None and train.pairs is not None
    assert train.labels.tolist() == [2, 0, 1, 0, 2] and train.labels.dtype == np.int32
    assert train.texts[2] == 'um we grow our own beans and some "odd" squash'
    assert train.pairs[3] == "The café opens in the morning."
    assert train.ids[4] == "train-4" and train.source.endswith("MNLI/train.tsv")
    matched = read_glue("mnli", fixtures / "glue/MNLI", "dev_matched")
    mismatched = read_glue("mnli", fixtures / "glue", "dev_mismatched")
    assert matched.labels is not None and matched.labels.tolist() == [0, 1, 2]
    assert mismatched.labels is not None and mismatched.labels.tolist() == [2, 0]
    assert read_glue("mnli", fixtures / "glue", "dev").texts == matched.texts != mismatched.texts


def test_qqp_and_qnli(fixtures: Path) -> None:
    qqp = read_glue("qqp", fixtures / "glue", "train")
    assert qqp.labels is not None and qqp.pairs is not None and qqp.labels.tolist() == [1, 0, 1, 0]
    assert (qqp.texts[2], qqp.pairs[2]) == ('What does "ad hoc" mean?', "What is the meaning of ad hoc?")
    qnli = read_glue("qnli", fixtures / "glue", "train")
    assert qnli.labels is not None and qnli.pairs is not None and qnli.labels.tolist() == [0, 1, 0]
    assert (qnli.texts[1], qnli.pairs[1][:14]) == ("Who designed the lighthouse?", "The lighthouse")


def test_cola_has_a_header_in_test_only(tmp_path: Path) -> None:
    folder = _write(tmp_path / "CoLA", "dev.tsv", "gj04\t1\t\tThe boat sank.\r\nks08\t0\t*\tThe boat sank it the.\n")
    dev = read_glue("cola", folder, "dev")
    assert dev.texts == ["The boat sank.", "The boat sank it the."] and dev.pairs is None
    assert dev.labels is not None and dev.labels.tolist() == [1, 0]
    _write(folder, "test.tsv", "index\tsentence\n0\tThe ship sailed.\n")
    test = read_glue("cola", folder, "test")
    assert test.texts == ["The ship sailed."] and test.labels is None


def test_mrpc_quotes_and_byte_order_mark(tmp_path: Path) -> None:
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = '1\t5\t6\t" He left , " she said .\tShe said : " he left .\n0\t7\t8\tSix " inches .\tFive feet .\n'
    mrpc = read_glue("mrpc", _write(tmp_path, "dev.tsv", header + rows), "dev")
    assert mrpc.texts == ['" He left , " she said .', 'Six " inches .']
    assert mrpc.pairs == ['She said : " he left .', "Five feet ."]


def test_only_a_newline_ends_a_row(tmp_path: Path) -> None:
    text = "sentence\tlabel\none\u2028two\x85three\x0bfour\t1\n"
    assert read_glue("sst2", _write(tmp_path, "dev.tsv", text), "dev").texts == ["one\u2028two\x85three\x0bfour"]


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("sst2", "", r"dev\.tsv: the file is empty"),
        ("sst2", "\n \n", "the file is empty"),
        ("sst2", "sentence\tlabel\n", "line 2: the file has a header and no rows"),
        ("sst2", "sentence\tlabel\ngood\t1\nbad\t2\n", "line 3: the label must be one of 0, 1; received '2'"),
        ("sst2", "sentence\tlabel\ngood\t\n", "line 2: the label must be one of 0, 1; received ''"),
        ("sst2", "sentence\tlabel\ngood\n", r"line 2: the row must have 2 columns, separated by tabs; received fewer"),
        ("sst2", "sentence\tlabel\na\tb\t1\n", "line 2: the row must have 2 columns; received 3"),
        ("sst2", "text\tlabel\na\t1\n", "line 1: the header must have .*; received text, label; add sentence"),
        ("sst2", b"sentence\tlabel\ngood\t1\ncaf\xe9\t1\n", "line 3: the text must be UTF-8; received byte 0xe9"),
        ("sst2", "sentence\tlabel\na\t1\n".encode("utf-16"), "line 1: the text must be UTF-8; received byte 0xff"),
        ("cola", "gj04\t1\t\tA.\ngj04\t3\t\tB.\n", "line 2: the label must be one of 0, 1; received '3'"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\t3.2\na\tb\tnan\n", "line 3: .*finite number; received 'nan'"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tfour\n", "line 2: the score must be .*'four'"),
        ("rte", "sentence1\tsentence2\tlabel\na\tb\t-\n", "one of entailment, not_entailment; received '-'"),
    ],
)
def test_bad_files_name_line_and_reason(tmp_path: Path, task: str, content: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_glue(task, _write(tmp_path, "dev.tsv", content), "dev")


def test_line_number_after_byte_order_mark(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfsentence\tlabel\n\xe9\t1\n"
    with pytest.raises(UserError, match="line 2: .*0xe9"):
        read_glue("sst2", _write(tmp_path, "dev.tsv", content), "dev")


def test_all_bad_rows_are_reported_together(tmp_path: Path) -> None:
    folder = _write(tmp_path, "dev.tsv", "sentence\tlabel\n" + "a\t1\nb\tx\n" * 7)
    with pytest.raises(UserError, match=r"line 3: .*; line 5: .*; line 11: .*; and 2 more rows$"):
        read_glue("sst2", folder, "dev")


def test_qqp_logs_skipped_broken_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    good, broken = "1\t2\t3\tWho?\tWhat?\t0\n", "4\t5\t6\tWhere\n"
    qqp = read_glue("qqp", _write(tmp_path, "train.tsv", header + good + broken + good), "train")
    assert len(qqp) == 2 and qqp.ids == ["train-0", "train-2"]
    assert "skipped 1 rows with missing columns" in capsys.readouterr().err
    _write(tmp_path, "train.tsv", header + good + broken * 11)
    with pytest.raises(UserError, match="line 3: the row must have 6 columns"):
        read_glue("qqp", tmp_path, "train")


@pytest.mark.parametrize(
    ("task", "header", "text", "pair"),
    [
        ("sst2", "index sentence", 1, None),
        ("mrpc", "index|#1 ID|#2 ID|#1 String|#2 String", 3, 4),
        ("stsb", "index genre filename year old_index source1 source2 sentence1 sentence2", 7, 8),
        ("qqp", "id question1 question2", 1, 2),
        (
            "mnli",
            "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse "
            "sentence2_parse sentence1 sentence2",
            8,
            9,
        ),
        ("qnli", "index question sentence", 1, 2),
        ("rte", "index sentence1 sentence2", 1, 2),
        ("wnli", "index sentence1 sentence2", 1, 2),
    ],
)
def test_test_files_have_other_headers(tmp_path: Path, task: str, header: str, text: int, pair: int | None) -> None:
    columns = header.split("|" if "|" in header else None)
    cells = [f"cell {index}" for index in range(len(columns))]
    name = "test_matched.tsv" if task == "mnli" else "test.tsv"
    _write(tmp_path, name, "\t".join(columns) + "\n" + "\t".join(cells) + "\n")
    test = read_glue(task, tmp_path, "test")
    assert (test.texts, test.pairs) == ([f"cell {text}"], None if pair is None else [f"cell {pair}"])
    assert test.labels is None


def test_test_file_rows_are_not_skipped(tmp_path: Path) -> None:
    # The server wants an answer to each.
    with pytest.raises(UserError, match="line 3: the row must have 3 columns, separated by tabs; received fewer"):
        read_glue("qqp", _write(tmp_path, "test.tsv", "id\tquestion1\tquestion2\n0\tWho?\tWhat?\n1\tWhere\n"), "test")


@pytest.mark.parametrize("name", ["diagnostic/diagnostic.tsv", "AX.tsv", "diagnostic.tsv"])
def test_mnlis_diagnostic_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    _write(path.parent, path.name, "index\tsentence1\tsentence2\n0\tThe cat sat.\tThe cat did not sit.\n")
    ax = read_glue("mnli", tmp_path, "diagnostic")
    assert (ax.texts, ax.pairs, ax.labels) == (["The cat sat."], ["The cat did not sit."], None)
    with pytest.raises(UserError, match=r"mnli needs the file diagnostic/diagnostic.tsv or AX.tsv or diagnostic.tsv"):
        read_glue("mnli", tmp_path / "diagnosis", "diagnostic")


def test_missing_tasks_splits_and_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sst2 needs the file SST-2/dev.tsv or dev.tsv; found none"):
        read_glue("sst2", tmp_path, "dev")
    with pytest.raises(UserError, match=r"no GLUE task 'sst-2' \(did you mean 'sst2'\?\); the tasks are cola, sst2"):
        read_glue("sst-2", tmp_path, "dev")
    with pytest.raises(UserError, match="no split 'dev_matched' of sst2; its splits are train, dev, test"):
        read_glue("sst2", tmp_path, "dev_matched")


# Rows of the real files, counted with wc -l less the header; and the share of class 1, or the mean score.
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "split", "count", "mean"),
    [
        ("cola", "train", 8551, 6023 / 8551),
        ("cola", "dev", 1043, 721 / 1043),
        ("sst2", "train", 67349, 37569 / 67349),
        ("sst2", "dev", 872, 444 / 872),
        ("mrpc", "train", 3668, 2474 / 3668),
        ("mrpc", "dev", 408, 279 / 408),
        ("stsb", "train", 5749, 2.7010),
        ("stsb", "dev", 1500, 2.3639),
        ("qnli", "dev", 5463, 2761 / 5463),
        ("rte", "train", 2490, 1241 / 2490),
        ("rte", "dev", 277, 131 / 277),
        ("wnli", "train", 635, 312 / 635),
        ("wnli", "dev", 71, 31 / 71),
    ],
)
def test_real_files(shared: Path, name: str, split: str, count: int, mean: float) -> None:
    examples = read_glue(name, shared / "data/glue", split)
    assert len(examples) == count and examples.labels is not None
    assert examples.labels.mean() == pytest.approx(mean, abs=2e-4)
    assert (examples.pairs is None) == (name in ("cola", "sst2"))
    assert all(text.strip() and "\t" not in text for text in examples.texts + (examples.pairs or []))
