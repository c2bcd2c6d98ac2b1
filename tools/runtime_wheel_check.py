"""Installs the small wheel, pocketbert-runtime, alone into an empty environment, and lets it answer every task there.

The answers must be those of the large environment. Then both wheels share the small environment, one is removed, and
the other still answers. `wheel_check.py` runs this.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from environment_steps import CheckFailed, run, timed

ROOT = Path(__file__).resolve().parents[1]
# Issue 47: the wheel, and everything that it installs. pip and the environment itself do not count.
MOST_WHEEL_BYTES, MOST_INSTALLED_BYTES = 1_000_000, 150_000_000
# Bundles of tiny networks with random weights: every task, and every tokenizer.
MAKE_BUNDLES = """
import io, json
import pocketbert as pb
from pocketbert.presets import preset
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

Task = pb.TaskConfig
labels, tags = ("bad", "good"), ("O", "B-FILM", "I-FILM")
classes = Task(kind="classification", labels=labels)
tasks = {
    "classification": classes,
    "embedding": Task(kind="embedding", embedding={"prompts": [["query", "good "]], "default_prompt": "query"}),
    "multi_label": Task(kind="multi_label", labels=labels),
    "regression": Task(kind="regression"),
    "separate_pairs": Task(kind="regression", pairs="separate"),
    "several": Task(kind="several", tasks=(
        Task(kind="classification", name="mood", labels=labels),
        Task(kind="token_classification", name="slots", labels=tags),
    )),
    "span": Task(kind="span", null_threshold=0.0),
    "token_classification": Task(kind="token_classification", labels=tags),
}
sizes = dict(
    hidden_size=30, embedding_size=30, num_layers=1, num_attention_heads=3, head_size=10, intermediate_size=41,
    max_position_embeddings=29,
)

def write(name, encoder, tokenizer, task):
    config = preset(encoder).config.replace(vocab_size=tokenizer.vocab_size, **sizes)
    model = pb.from_preset(config, task=[task], tokenizer=tokenizer, seed=1)
    pb.export(model, f"bundles/{name}", recipe="float32", lengths=[8, 16])

for name, task in tasks.items():
    write(name, "tinybert_4l_312d", pb.WordPieceTokenizer("vocab.txt"), task)
added = pb.AddedToken(content="<film>", id=pb.WordPieceTokenizer("vocab.txt").vocab_size, normalized=True)
write("added_tokens", "tinybert_4l_312d", pb.WordPieceTokenizer("vocab.txt", added_tokens=[added]), classes)

texts, special = ["a very good film .", "a bad play ."] * 3, ["<s>", "<pad>", "</s>", "<unk>"]
core = Tokenizer(models.BPE())
core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
core.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False))
model = json.loads(core.to_str())["model"]
tokens = [*special, *sorted(model["vocab"], key=model["vocab"].__getitem__), "<mask>"]
merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
with open("vocab.json", "w", encoding="utf-8") as stream:
    json.dump({token: number for number, token in enumerate(tokens)}, stream)
with open("merges.txt", "w", encoding="utf-8") as stream:
    stream.write("".join(f"{line}\\n" for line in merges))
write("byte_bpe", "roberta_base", pb.ByteBPETokenizer("vocab.json", "merges.txt"), classes)

with open("sentencepiece.bpe.model", "wb") as stream:
    SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=stream, vocab_size=60, normalization_rule_name="nmt_nfkc",
        hard_vocab_limit=False, minloglevel=2,
    )
write("unigram", "xlm_r_base", pb.UnigramTokenizer("sentencepiece.bpe.model"), classes)
"""
ANSWER = """
import json, sys, zipfile
from pathlib import Path
from pocketbert_runtime import Bundle, UserError

texts, pairs = ["a very good <film> .", "bad \\u00e9", ""], [("a film .", "a very good play ."), ("bad", "good")]
answers = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    packed = Path("bundle.zip")
    with zipfile.ZipFile(packed, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"{folder.name}/{file.name}")
    try:
        for path in (folder, packed):
            with Bundle.open(path, threads=2) as bundle:
                inputs = pairs if folder.name in ("separate_pairs", "span") else texts
                answers[f"{folder.name} {path.suffix}"] = bundle.predict(inputs)
    except UserError as error:
        answers[folder.name] = str(error)
assert "tensorflow" not in sys.modules
print(json.dumps(answers))
"""


def check(folder: Path, interpreter: str, large: Path, work: Path, wheel: Path) -> None:
    """Builds and tries the small wheel.

    Args:
      folder: the small environment's folder, which must not exist.
      interpreter: the Python that makes it.
      large: Python in an environment with PocketBERT.
      work: the large environment's working folder, with a `vocab.txt`.
      wheel: PocketBERT's wheel.
    Raises:
      CheckFailed: a step fails, or the answers differ.
    """
    timed("pip: make bundles of every task", large, "-c", MAKE_BUNDLES, folder=work)
    small_wheel = built_wheel(folder.parent / "small", interpreter)
    run(interpreter, "-m", "venv", folder, folder=folder.parent)
    python = folder / "bin" / "python"
    before = _size(folder)

    def pip(*arguments: str | Path) -> None:
        run(python, "-m", "pip", *arguments, "--quiet", folder=folder)

    timed("runtime: install", python, "-m", "pip", "install", "--quiet", "--no-compile", small_wheel, folder=folder)
    pip("check")
    installed = _size(folder) - before
    print(f"          {small_wheel.stat().st_size / 1e3:.0f} kB wheel, {installed / 1e6:.0f} MB installed", flush=True)
    for subject, size, most in (
        ("wheel", small_wheel.stat().st_size, MOST_WHEEL_BYTES), ("installation", installed, MOST_INSTALLED_BYTES),
    ):  # fmt: skip
        if size > most:
            raise CheckFailed(f"the runtime's {subject} must have at most {most:,} bytes; it has {size:,}")
    bundles = work / "bundles"
    expected = _answers(large, bundles, work)
    if missing := [name for name in expected if isinstance(expected[name], str)]:
        raise CheckFailed(f"PocketBERT must answer for every bundle; {missing[0]}: {expected[missing[0]]}")
    message = _answers(python, bundles, folder).get("unigram", "")
    if "run: pip install 'sentencepiece" not in message:
        raise CheckFailed(f"a bundle with unigram must name its extra; received {message!r}")
    expected = {name: answer for name, answer in expected.items() if not name.startswith("unigram")}

    def compare(state: str) -> None:
        received = _answers(python, bundles, folder)
        received.pop("unigram")
        if received != expected:
            names = [name for name in expected if received.get(name) != expected[name]]
            raise CheckFailed(f"{state}: answers differ from PocketBERT's for {', '.join(names)}")
        print(f"          {state}: {len(received)} answers are PocketBERT's", flush=True)

    compare("runtime alone")
    both = "import pocketbert, pocketbert_runtime; print(pocketbert_runtime.__file__)"
    pip("install", "--no-deps", wheel)
    compare("runtime, then pocketbert")
    pip("uninstall", "--yes", "pocketbert-runtime")
    compare("pocketbert alone")
    if "pocketbert_wheel" not in run(python, "-c", both, folder=folder):
        raise CheckFailed("pocketbert alone must use its own copy of the runtime")
    pip("install", "--no-deps", small_wheel)
    if "pocketbert_wheel" in run(python, "-c", both, folder=folder):
        raise CheckFailed("with both distributions, that of pocketbert-runtime must come first")
    compare("pocketbert, then runtime")
    pip("uninstall", "--yes", "pocketbert")
    compare("runtime after pocketbert was removed")
    shutil.rmtree(folder)


def built_wheel(folder: Path, interpreter: str) -> Path:
    """Builds the small wheel into a folder; returns its path."""
    # setuptools would pack leftovers of earlier builds, including deleted modules.
    shutil.rmtree(ROOT / "out" / "setuptools-runtime", ignore_errors=True)
    folder.mkdir(parents=True)
    source = ROOT / "runtime"
    command = (interpreter, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    timed("build the small wheel", *command, folder=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _answers(python: Path, bundles: Path, folder: Path) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(run(python, "-c", ANSWER, bundles, folder=folder))
    return answers


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
