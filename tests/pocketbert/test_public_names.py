"""`import pocketbert as pb`: what it offers, what it costs, and what an unknown name gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pocketbert as pb
from pocketbert.data import assets
from pocketbert.errors import UserError


def test_import_and_presets_load_no_tensorflow() -> None:
    code = (
        "import sys; import pocketbert as pb; pb.presets(); dir(pb); pb.data.from_pairs(['a', 'b'], ['x', 'y']); "
        "print(', '.join({'tensorflow', 'pandas', 'pocketbert_export', 'pocketbert_bench'} & {*sys.modules}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0 and not answer.stdout.strip(), answer.stdout + answer.stderr


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'finetun' \(did you mean 'finetune'\?\); it has .*Model"):
        _ = pb.finetun  # type: ignore[attr-defined]
    assert {*pb.__all__} <= {*dir(pb)}


def test_each_method_is_a_public_name() -> None:
    from pocketbert.distillation import methods

    for name in methods.names():
        method = methods.get_method(name)
        assert getattr(pb, method.__name__) is method and method.__name__ in pb.__all__


def test_from_preset_takes_one_task_or_several() -> None:
    import tiny

    mood = pb.TaskConfig(kind="classification", labels=("low", "high"))
    assert pb.from_preset(tiny.BERT).task is None
    assert pb.from_preset(tiny.BERT, task=mood).tasks == (mood,)
    assert pb.from_preset(tiny.BERT, task=[mood, pb.TaskConfig(kind="span")]).tasks[1].kind == "span"


def test_from_pretrained_fetches_a_known_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tiny_finetuning

    fetched = tiny_finetuning.write_model(tmp_path / "fetched")
    monkeypatch.setattr(assets, "fetch_asset", lambda name: {"all-minilm": fetched}[name])
    monkeypatch.chdir(tmp_path)
    model = pb.from_pretrained("all-minilm")
    assert (model.config, model.tokenizer.vocab_size) == (tiny_finetuning.CONFIG, tiny_finetuning.CONFIG.vocab_size)
    # A folder of that name is what the user means.
    tiny_finetuning.write_model(tmp_path / "all-minilm", tiny_finetuning.CONFIG.replace(num_layers=2))
    assert pb.from_pretrained("all-minilm").config.num_layers == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("all-minlm", r"received all-minlm \(did you mean 'all-minilm'\?\)"),
        ("a/b", "received a/b; check"),
        ("movie-reviews", r"fetch \(all-minilm\); received movie"),
    ],
)
def test_neither_folder_nor_known_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^a model directory must be a folder or a name for pocketbert .*{message}"):
        pb.from_pretrained(name)
