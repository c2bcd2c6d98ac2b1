"""Kills a command before each of its changes of the file system: `killed_commands.py NAME,… FOLDER [EVERY [FIRST]]`.

Temporary files are below the folder of the attempt, so that they count, and nothing may be left of them. TensorFlow is
imported once; each attempt is a fork, and none of its operations runs before. Prints how many changes there were.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cheap_tensorflow
import killing
import tiny_distillation
import tiny_finetuning
import tiny_masked_lm
import tiny_pretraining

MODULES = (
    "pocketbert.checkpoints.directory",
    "pocketbert.training.finetune",
    "pocketbert.distillation.run",
    "pocketbert.augmentation.run",
    "pocketbert.distillation.cache_teacher",
    "pocketbert.data.pretraining.run",
    "pocketbert.pruning.run",
    "pocketbert.pruning.vocabulary",
    "pocketbert.plots.attention",
    "pocketbert.search.run",
    "pocketbert_export.exporter",
    "pocketbert_export.bundles.predictors",
    "pocketbert_export.clients.serving",
    "pocketbert_bench.report",
    "pocketbert_bench.try_page",
)
TRAINING = ["--learning-rate=3e-3", "--batch-size=16", "--checkpoint-seconds=0", "--max-length=19"]


TEMPORARY = "temporary"


def write_inputs(folder: Path) -> int:
    """All that the commands read."""
    import bench_subjects

    import pocketbert as pb
    from pocketbert_bench import results, try_page
    from pocketbert_export.exporter import export

    folder.mkdir(parents=True)
    tiny_finetuning.write_model(folder / "plain", tiny_finetuning.CONFIG.replace(num_layers=1))
    tiny_distillation.write_teacher(folder / "teacher")
    pb.from_preset(tiny_distillation.STUDENT).save_pretrained(folder / "student")
    tiny_masked_lm.write_model(folder / "masked_lm")
    for name, count in (("train", 48), ("dev", 16)):
        tiny_finetuning.write_table(folder / f"{name}.csv", tiny_finetuning.examples(count, seed=count))
    tiny_pretraining.write_vocabulary(folder / "vocab.txt")
    words = tiny_pretraining.PIECES[5:17]
    documents = ["\n".join(" ".join(words[(n + s) % 12] for n in range(5)) for s in range(4)) for _ in range(12)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    export(folder / "teacher", folder / "bundle", recipe="float32", lengths=[16])
    results.write(folder / "result.json", bench_subjects.result(bench_subjects.measurement("float32", 9, 1.0)))
    with tarfile.open(folder / "package.tgz", "w:gz") as archive:
        for name in {name for package in try_page.PACKAGES for name in package.files}:
            archive.add(folder / "text.txt", f"package/{name}")
    return 0


def commands(inputs: Path) -> dict[str, tuple[list[str], list[str] | None]]:
    """Name → the command, and the options with which its output was made before; None where it was not."""
    table = [f"--train-file={inputs / 'train.csv'}", f"--dev-file={inputs / 'dev.csv'}"]
    models = [f"--teacher={inputs / 'teacher'}", f"--student={inputs / 'student' / 'config.json'}"]
    models += [*table, f"--labels={','.join(tiny_finetuning.TASK.labels)}", "--max-length=19"]
    method = ["--method=tinybert", *models]
    relations = ["distill", "--method=minilmv2", *models, "--relation-heads=10", "--epochs=1", "--finetuning-epochs=1"]
    hsk = ["--method=hsk", *models, "--knowledge=1,5,0.3", "--top-layer=1"]
    train_hsk = ["distill", *hsk, "--epochs=1", "--prediction-epochs=1", "--checkpoint-seconds=0", "--output=out"]
    one_epoch = ["--intermediate-epochs=1", "--prediction-epochs=1", "--checkpoint-seconds=0"]
    finetune = ["finetune", f"--model={inputs / 'plain'}", *table, *TRAINING, "--epochs=1", "--output=out"]
    convert = ["convert", "--from=hf", f"--input={inputs / 'plain'}", "--output=out"]
    data = ["pretrain-data", f"--text={inputs / 'text.txt'}", f"--vocab={inputs / 'vocab.txt'}", "--shards=2"]
    data += ["--workers=1", "--max-length=21", "--output=out"]
    augment = ["augment", f"--masked-lm={inputs / 'masked_lm'}", f"--train-file={inputs / 'train.csv'}", "--copies=1"]
    augment += ["--output=out.jsonl"]
    export = ["export", f"--model={inputs / 'teacher'}", "--recipe=float32", "--lengths=16", "--output=out"]
    beside = [*export, "--saved-model=saved", "--mediapipe"]
    serving = [*export, "--saved-model=saved", "--saved-model-inputs=text"]
    report = ["report", f"{inputs / 'result.json'}", f"--try={inputs / 'bundle'}", "--output=out"]
    predict = ["predict", f"--model={inputs / 'bundle'}", f"--input={inputs / 'text.txt'}", "--output=out.jsonl"]
    trim = ["trim-vocabulary", f"--model={inputs / 'plain'}", f"--text={inputs / 'text.txt'}", "--output=out"]
    plot = ["plot", "attention", f"--model={inputs / 'plain'}", "--text=a warm film", "--max-tokens=19"]
    plot += [f"--input={inputs / 'dev.csv'}", "--max-length=19", "--output=out"]
    prune = ["prune", f"--model={inputs / 'teacher'}", *table, "--layers=1", "--heads=2", "--intermediate-size=7"]
    prune += [*method[-2:], "--embedding-rank=3", "--batch-size=20", "--checkpoint-seconds=0", "--output=out"]
    search = ["search", f"--teacher={inputs / 'teacher'}", f"--student={inputs / 'student' / 'config.json'}", *table]
    search += [*method[-2:], "--candidates=2,1", "--supernet-epochs=1", "--output=out"]
    dump = ["cache-teacher", *method, "--output=out"]
    bundle = ["bundle", f"--model={inputs / 'plain'}", *table, *TRAINING, "--epochs=1", "--recipe=float32"]
    bundle += ["--lengths=16", "--output=out"]
    return {
        "convert": (convert, None),
        "convert_overwrite": ([*convert, "--overwrite"], ["--nolowercase"]),
        "export": (export, None),
        "export_overwrite": ([*export, "--overwrite"], ["--nofirst-token-only"]),
        "export_beside": (beside, None),
        "export_beside_overwrite": ([*beside, "--overwrite"], ["--nofirst-token-only"]),
        "export_serving": (serving, None),
        "report_try": (report, None),
        "report_try_overwrite": ([*report, "--overwrite"], ["--title=old"]),
        "predict": (predict, None),
        "distill_compare": (["distill", *method, *one_epoch, "--compare", "--output=out"], None),
        "finetune": (finetune, None),
        "finetune_overwrite": ([*finetune, "--overwrite"], ["--batch-size=24"]),
        "finetune_folds": ([*finetune[:3], *finetune[4:], "--kfold=2", "--contrastive-steps=0"], None),
        "augment": (augment, None),
        "augment_overwrite": ([*augment, "--overwrite"], ["--seed=3"]),
        "pretrain_data": (data, None),
        "pretrain_data_overwrite": ([*data, "--overwrite"], ["--seed=3"]),
        "distill": (["distill", *method, *one_epoch, "--output=out"], None),
        "distill_minilmv2": ([*relations, "--checkpoint-seconds=0", "--output=out"], None),
        "distill_hsk": (train_hsk, None),
        "cache_teacher": (dump, None),
        "cache_teacher_hsk": (["cache-teacher", *hsk, "--dtype=int8", "--output=out"], None),
        "bundle": (bundle, None),
        "prune": (prune, None),
        "prune_overwrite": ([*prune, "--overwrite"], ["--batch-size=24"]),
        "search": (search, None),
        "plot": (plot, None),
        "plot_overwrite": ([*plot, "--overwrite"], ["--text=a dull film"]),
        "trim_vocabulary": (trim, None),
        "trim_vocabulary_overwrite": ([*trim, "--overwrite"], ["--min-count=9"]),
    }


def without_times(root: Path) -> dict[str, Any]:
    """Everything there, but for times, and for the random number of a SavedModel."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(member) for name, member in value.items() if "seconds" not in name}
        return [plain(member) for member in value] if isinstance(value, list) else value

    times: dict[str, Any] = {}
    everything = killing.tree(root)
    for name, content in everything.items():
        if "/tensorboard/" in name:
            continue
        page_with_times = name.endswith("report.html") and name.replace("report.html", "comparison.json") in everything
        times[name] = b"" if page_with_times or name.endswith("fingerprint.pb") else content
        if name.endswith(".json") and content:
            with contextlib.suppress(ValueError):
                times[name] = plain(json.loads(content))
    return times


def run(arguments: list[str], inputs: Path) -> Callable[[Path], int]:
    def action(root: Path) -> int:
        from pocketbert.cli import main

        os.chdir(root)
        cheap_tensorflow.use()
        tempfile.tempdir = str(root / TEMPORARY)
        # Without npm.
        try_page = importlib.import_module("pocketbert_bench.try_page")
        try_page.archive_of = lambda package: inputs / "package.tgz"
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            return main(arguments)

    return action


def kill(folder: Path, inputs: Path, name: str, every: int, first: int) -> int:
    command, earlier = commands(inputs)[name]
    before, attempts = folder / "before", folder / "attempts"
    (before / TEMPORARY).mkdir(parents=True)
    attempts.mkdir()
    if earlier is not None:
        options = [argument for argument in command if argument != "--overwrite"]
        assert killing.attempt(lambda: run([*options, *earlier], inputs)(before)) == 0

    def prepare(root: Path) -> None:
        shutil.copytree(before, root, dirs_exist_ok=True)

    # Beside a second output a command records the main folder's inode, which no copy has.
    copied = not {"--saved-model=saved", "--mediapipe"} & set(command) and command[0] != "report"
    return killing.kill_at_each_change(
        run(command, inputs), prepare, attempts, every=every, first=first, copied=copied, compared=without_times
    )


if __name__ == "__main__":
    for module in MODULES:
        importlib.import_module(module)
    place, numbers = Path(sys.argv[2]), [int(argument) for argument in sys.argv[3:]]
    every_so_many, first_change = [*numbers, *(1, 1)[len(numbers) :]]
    assert killing.attempt(lambda: write_inputs(place / "inputs")) == 0
    for chosen in sys.argv[1].split(","):
        changes = kill(place / chosen, place / "inputs", chosen, every_so_many, first_change)
        print(f"{chosen}: {changes} changes", flush=True)
