"""Arguments in messages: as Python has them, or as the flags of the running command."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pocketbert import cli
from pocketbert.commands.flag_notation import FlagNotation
from pocketbert.data.data_warnings import truncation_warning
from pocketbert.errors import UserError
from pocketbert.notation import Notation, argument, command, current_notation, use_notation
from pocketbert.trials.jobs import Job
from pocketbert.trials.workers import Processes


@pytest.mark.parametrize(
    ("name", "python", "flag"),
    [
        (lambda: argument("overwrite", True), "overwrite=True", "--overwrite"),
        (lambda: argument("show_texts", False), "show_texts=False", "--noshow-texts"),
        (lambda: argument("max_length", 64), "max_length=64", "--max-length=64"),
        (lambda: argument("learning_rate", 2e-5), "learning_rate=2e-05", "--learning-rate=2e-5"),
        (lambda: argument("dev"), "dev=", "--dev-file"),
        (lambda: argument("train", ...), "train=…", "--train-file=…"),
        (lambda: argument("label", ""), "label=''", "--label-column="),
        (lambda: argument("separator", ";"), "separator=';'", "--separator=';'"),
        (
            lambda: argument("label_names", ("a b", "c,d")),
            "label_names=('a b', 'c,d')",
            """--labels='a b,"c,d"'""",
        ),
        (lambda: argument("lengths", [7, 9], of="export"), "lengths=[7, 9]", "--lengths=7,9"),
        (lambda: argument("task", python="pb.data.glue"), "pb.data.glue", "--task"),
        # `finetune` has no teacher, so there is no flag to name.
        (lambda: argument("teacher", "runs/t"), "teacher='runs/t'", "teacher='runs/t'"),
        (
            lambda: command("convert", python="pb.from_pretrained('a')", from_="hf", input="a b", headless=True),
            "pb.from_pretrained('a')",
            "pocketbert convert --from=hf --input='a b' --headless",
        ),
    ],
)
def test_notation_depends_on_the_caller(name: Any, python: str, flag: str) -> None:
    assert name() == python
    with use_notation(pickle.loads(pickle.dumps(FlagNotation("finetune")))):  # noqa: S301
        assert name() == flag
    assert name() == python


def test_method_options_are_flags_of_their_method() -> None:
    with use_notation(FlagNotation("distill", ("--method=minilmv2",))):
        assert argument("relation_heads", 48) == "--relation-heads=48"
    with use_notation(FlagNotation("distill", ("--method=tinybert",))):
        assert argument("relation_heads", 48) == "relation_heads=48"


def test_data_warnings_follow_the_caller() -> None:
    assert str(truncation_warning("a.csv", 3, 7, 64)).endswith("(head); pass a larger max_length=, or shorten them")
    with use_notation(FlagNotation("finetune")):
        assert str(truncation_warning("a.csv", 3, 7, 64)).endswith("; pass a larger --max-length, or shorten them")


def refuse(point: Any, seed: int, folder: Path) -> None:
    raise UserError(f"{folder}: pass {argument('overwrite', True)}")


def test_worker_processes_have_the_notation_of_their_parent(tmp_path: Path) -> None:
    with use_notation(FlagNotation("finetune")), pytest.raises(UserError, match="pass --overwrite$"):
        list(Processes(1).outcomes(refuse, [Job({}, 0, tmp_path / "run")]))


def test_a_failed_command_leaves_pythons_notation(tmp_path: Path) -> None:
    flags = [f"--model={tmp_path}", f"--train-file={tmp_path / 'none.csv'}", f"--output={tmp_path / 'run'}"]
    assert cli.main(["finetune", *flags]) == 2
    assert type(current_notation()) is Notation
