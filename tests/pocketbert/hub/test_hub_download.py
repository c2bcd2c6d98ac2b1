"""Downloads by name: requests, kept files and refusals."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import hub_stand_in
import numpy as np
import pytest
from hub_stand_in import Hub, write_model

from pocketbert import cli
from pocketbert.checkpoints.directory import read_directory
from pocketbert.errors import UserError
from pocketbert.hub.download import download, origin
from pocketbert.hub.names import name_of, parse_hub_name, short_name
from pocketbert.presets import presets

NAME = "hf:lab/tiny"
READ = {"README.md", "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"}


def command(capsys: pytest.CaptureFixture[str], model: str) -> tuple[int, str]:
    """Runs a command that reads a model; returns its exit code and stderr."""
    code = cli.main(["plot", "ffn", f"--model={model}", "--output=unused"])
    return code, capsys.readouterr().err


def test_files_are_those_that_are_read(hub: Hub, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = hub.repositories["lab/tiny"].branches["main"]
    folder = download(NAME)
    assert folder == cache / "models--lab--tiny" / "snapshots" / commit
    assert {path.name for path in folder.iterdir()} == READ == {*hub.files()}
    assert hub.files()[-1] == "model.safetensors"
    files = hub.repositories["lab/tiny"].commits[commit]
    assert all((folder / name).read_bytes() == files[name] for name in READ)
    size = sum(len(files[name]) for name in READ) / 1e6
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"downloading {NAME}@{commit}: {size:,.1f} MB in 5 files, licence mit, into {cache / 'models--lab--tiny'}"
    ]
    assert origin(folder) == {"name": f"{NAME}@{commit}", "revision": "main", "license": "mit"}
    assert short_name(folder) == "tiny"


def test_size_comes_before_the_download(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr("pocketbert.hub.download.log_info", lambda line: events.append(f"{len(hub.files())} {line}"))
    download(NAME)
    assert len(events) == 1 and events[0].startswith("0 downloading")


def test_second_use_requests_the_commit_alone(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    folder = download(NAME)
    capsys.readouterr()
    hub.requests.clear()
    assert download(NAME) == folder
    assert hub.requests == ["GET /api/models/lab/tiny/revision/main"] and capsys.readouterr().err == ""


def test_model_is_the_folder_that_was_pushed(hub: Hub, tmp_path: Path) -> None:
    model, pushed = read_directory(download(NAME)), read_directory(tmp_path / "pushed")
    assert (model.config, model.tasks) == (pushed.config, pushed.tasks) and model.vocabulary is not None
    assert model.tensors.keys() == pushed.tensors.keys()
    for path, tensor in model.tensors.items():
        np.testing.assert_array_equal(tensor, pushed.tensors[path], err_msg=path)


def test_errors_name_the_model(hub: Hub) -> None:
    commit = hub.push("lab/tiny", tiny_files(hub) | {"config.json": b'{"model_type": "bert"}'})
    with pytest.raises(UserError, match=f"^{NAME}@{commit}: "):
        read_directory(download(NAME))


def test_configuration_that_names_code_is_refused(hub: Hub) -> None:
    files = tiny_files(hub)
    config = json.loads(files["config.json"]) | {"auto_map": {"AutoModel": "modeling.Model"}}
    hub.push("lab/code", files | {"config.json": json.dumps(config).encode()})
    folder = download("hf:lab/code")
    assert not (folder / "modeling.py").exists()
    with pytest.raises(UserError, match="auto_map"):
        read_directory(folder)


def test_branches_tags_and_commits(hub: Hub, tmp_path: Path) -> None:
    first = hub.repositories["lab/tiny"].branches["main"]
    newer = write_model(tmp_path / "newer", num_layers=2)
    second = hub.push("lab/tiny", newer, "refs/pr/3")
    assert download(f"{NAME}@refs/pr/3").name == second
    assert download(f"{NAME}@{first}").name == first == download(NAME).name
    hub.push("lab/tiny", newer)
    assert download(NAME).name == second
    assert download(NAME, {NAME: first}).name == first


def test_offline_use_of_the_cache(
    hub: Hub, offline: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = download(NAME)
    hub.repositories["lab/tiny"].status = 503
    capsys.readouterr()
    assert download(NAME) == folder
    assert f"{NAME}: the hub answered with status 503; using commit {folder.name}" in capsys.readouterr().err
    hub.requests.clear()
    offline()
    assert download(NAME) == folder == download(f"{NAME}@{folder.name}")
    assert hub.requests == [] and "HF_HUB_OFFLINE forbids connections; using" in capsys.readouterr().err
    with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids connections, and the cache in .* has no copy; unset"):
        download(f"{NAME}@v2")
    hub_stand_in.connect(monkeypatch, "http://127.0.0.1:9", folder.parents[2])
    assert download(NAME) == folder
    assert "the connection to the hub failed (" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("hf:tiny", "must be hf:ORG/NAME or hf:ORG/NAME@REVISION; received hf:tiny"),
        ("hf:lab/tiny@", "must be hf:ORG/NAME or"),
        ("hf:lab/../tiny", "must be hf:ORG/NAME or"),
        ("hf:lab/..", "must be hf:ORG/NAME or"),
        ("hf:lab/tiny@../../x", "must be hf:ORG/NAME or"),
        ("hf:lab--x/tiny", "must be hf:ORG/NAME or"),
        (
            "hf:lab/none",
            "hf:lab/none: the hub has no such model, or it is private, and the cache in {cache} has no copy; check the "
            "name and HF_TOKEN",
        ),
        ("hf:lab/tiny@v9", "hf:lab/tiny@v9: the model has no revision v9, and the cache in {cache} has no copy; check"),
        (
            "hf:lab/gated",
            "hf:lab/gated: the model is gated, and the cache in {cache} has no copy; accept its terms on "
            "https://huggingface.co/lab/gated and set HF_TOKEN",
        ),
        ("hf:lab/broken", "hf:lab/broken: the hub answered with status 500, and the cache in"),
        (
            "hf:lab/pickled",
            "hf:lab/pickled: a model on the hub must have safetensors; received pytorch_model.bin; load it with "
            "transformers and save it with save_pretrained",
        ),
        (
            "hf:lab/keras",
            "received tf_model.h5; run pocketbert convert --from=hf --input=lab/keras --output=models/keras",
        ),
        ("hf:lab/empty", "must have safetensors; received no weights; choose another model"),
        ("hf:lab/lying", "hf:lab/lying: the hub must answer with the model's commit; received '../../../lying'"),
        ("lab/tiny", "received lab/tiny; the presets are {presets}; if it is on Hugging Face's hub, pass hf:lab/tiny"),
    ],
)
def test_refusal_is_one_line(
    model: str, message: str, hub: Hub, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, file in (("pickled", "pytorch_model.bin"), ("keras", "tf_model.h5"), ("empty", "config.json")):
        hub.push(f"lab/{name}", {"config.json": b"{}", file: b"x"})
    hub.push("lab/gated", tiny_files(hub))
    hub.repositories["lab/gated"].gated = True
    hub.push("lab/broken", tiny_files(hub))
    hub.repositories["lab/broken"].status = 500
    hub.push("lab/lying", tiny_files(hub))
    hub.repositories["lab/lying"].sha = "../../../lying"
    code, err = command(capsys, model)
    lines = [line for line in err.splitlines() if not line.startswith("downloading")]
    assert code == 2 and len(lines) == 1
    assert message.format(cache=cache, presets=", ".join(presets())) in lines[0]
    assert hub.files() == [] and not list(cache.rglob("*.bin"))


def test_missing_client_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    code, err = command(capsys, NAME)
    assert code == 2 and err.count("\n") == 1
    assert "hf:lab/tiny needs the hub's client, huggingface_hub; run pip install 'pocketbert[hub]'" in err


def test_no_file_leaves_the_snapshot(hub: Hub, tmp_path: Path, cache: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Pooling", "path": path} for path in ("../..", "/tmp", "a/b", ".")]
    names = ("../../evil.json", "/config.json", "../config.json", "a/b/config.json", "..\\vocab.txt", "./vocab.txt")
    hub.push("lab/evil", tiny_files(hub) | {"modules.json": json.dumps(modules).encode()})
    hub.repositories["lab/evil"].listed = names
    folder = download("hf:lab/evil")
    assert {*hub.files()} == READ | {"modules.json"}
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and cache not in path.parents]
    assert {path.parent for path in outside} <= {tmp_path, tmp_path / "pushed"}
    assert {path.name for path in folder.rglob("*")} == READ | {"modules.json"}
    with pytest.raises(UserError, match="must be a folder beside modules.json"):
        read_directory(folder)


def test_read_only_cache_with_the_model_is_enough(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = download(NAME)

    def refused(path: Path, content: str) -> None:
        raise UserError(f"{path} cannot be written (Permission denied); choose another output")

    # Root may write everywhere.
    monkeypatch.setattr("pocketbert.hub.download.write_text", refused)
    assert download(NAME) == folder


def test_copy_from_another_program_may_be_incomplete(
    hub: Hub, offline: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = download(NAME)
    offline()
    capsys.readouterr()
    assert download(NAME) == folder
    assert "another program" not in capsys.readouterr().err
    # Another program's download has no such mark.
    shutil.rmtree(folder.parents[1] / "pocketbert")
    assert download(NAME) == folder
    assert "another program downloaded it, perhaps without tokenizer or pooling; connect" in capsys.readouterr().err


@pytest.mark.parametrize("cut", ["tokenizer_config.json", "model.safetensors"])
def test_partial_download_is_not_used(cut: str, hub: Hub, cache: Path, offline: Callable[[], None]) -> None:
    hub.cut = cut
    with pytest.raises(UserError, match=r"the connection to the hub failed \(.*Incomplete.*has no copy; check the con"):
        download(NAME)
    folder = next((cache / "models--lab--tiny" / "snapshots").iterdir())
    assert not (folder / cut).exists() and not (folder / "model.safetensors").exists()
    offline()
    with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids connections, and the copy in .* is incomplete; unset"):
        download(f"{NAME}@{folder.name}")


def test_repeated_download_completes(hub: Hub) -> None:
    hub.cut = "model.safetensors"
    with pytest.raises(UserError, match="the connection to the hub failed"):
        download(NAME)
    hub.cut = ""
    hub.requests.clear()
    folder = download(NAME)
    assert hub.files() == ["model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == tiny_files(hub)["model.safetensors"]


def test_shards_and_modules(hub: Hub, tmp_path: Path, offline: Callable[[], None]) -> None:
    files = tiny_files(hub)
    weights = files.pop("model.safetensors")
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    index = {"weight_map": {"a": shards[0], "b": shards[1]}}
    modules = [{"type": "T", "path": path} for path in ("", "1_Pooling/", "2_Dense")]
    files |= {
        "model.safetensors.index.json": json.dumps(index).encode(),
        **dict.fromkeys(shards, weights),
        "modules.json": json.dumps(modules).encode(),
        "1_Pooling/config.json": b"{}",
        "2_Dense/config.json": b"{}",
        "2_Dense/model.safetensors": weights,
        "onnx/model.safetensors": weights,
        "adapter.safetensors": weights,
        "spm.model": b"x",
        "sentence_bert_config.json": b"{}",
        "train.json": b"{}",
    }
    hub.push("lab/parts", files)
    folder = download("hf:lab/parts")
    # Equal contents are downloaded once.
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    unread = {
        "onnx/model.safetensors",
        "adapter.safetensors",
        "train.json",
        "pytorch_model.bin",
        "modeling.py",
        ".pocketbert",
    }
    assert written == {*files} - unread
    offline()
    assert download("hf:lab/parts") == folder
    (folder / shards[1]).unlink()
    with pytest.raises(UserError, match="incomplete"):
        download("hf:lab/parts")


def test_module_without_safetensors_is_refused(hub: Hub) -> None:
    modules = [{"type": "T", "path": path} for path in ("", "2_Dense")]
    dense = {"2_Dense/config.json": b"{}", "2_Dense/pytorch_model.bin": b"x"}
    hub.push("lab/dense", tiny_files(hub) | dense | {"modules.json": json.dumps(modules).encode()})
    with pytest.raises(UserError, match="must have safetensors; received pytorch_model.bin"):
        download("hf:lab/dense")


def test_unwritable_cache_is_one_line(hub: Hub, cache: Path) -> None:
    cache.write_text("a file", encoding="utf-8")
    with pytest.raises(UserError, match="the cache must be a writable folder with space; received the error"):
        download(NAME)


def test_names() -> None:
    assert str(parse_hub_name("hf:a/b@main")) == "hf:a/b"
    name = parse_hub_name("hf:a.b/c_d@refs/pr/1")
    assert (name.repository, name.revision) == ("a.b/c_d", "refs/pr/1")
    commit = "0123456789" * 4
    assert str(name_of(f"/x/models--a--b-c/snapshots/{commit}")) == f"hf:a/b-c@{commit}"
    assert name_of(f"/x/models--a--b/snapshots/{commit}/1_Pooling") is None
    assert name_of("/x/models--a--b/snapshots/main") is None


def tiny_files(hub: Hub) -> dict[str, bytes]:
    repository = hub.repositories["lab/tiny"]
    return dict(repository.commits[repository.branches["main"]])
