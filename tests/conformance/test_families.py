"""Every family does what the table in docs/reference/families.md says, and refuses the rest with the message there.

`test_family_parity.py` compares every family with transformers' classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_adaptation
import tiny_distillation
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.checkpoints.families.registry import FAMILIES
from pocketbert.configs import EncoderConfig
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.errors import UserError
from pocketbert.pruning.config import PruneConfig
from pocketbert.pruning.vocabulary import trim_vocabulary
from pocketbert.recipes import RECIPES
from pocketbert_export.clients.mediapipe_files import check_client
from pocketbert_export.recipes import check_blocks
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/families.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
# Family → column → cell.
TABLE = {row[1].strip("`"): dict(zip(ROWS[0], row, strict=True)) for row in ROWS[2:]}
MESSAGES = dict(re.findall(r"^(\d+)\. `(.+)`$", PAGE, re.M))
# Family → its name in `tiny_adaptation`.
TINY = {config.model_type: name for name, (config, _, _) in tiny_adaptation.FAMILIES.items() if name != "minilm"}
LARGER: dict[str, EncoderConfig] = {
    "bert": tiny.BERT,
    "roberta": tiny.ROBERTA,
    "xlm-roberta": tiny.ROBERTA.replace(model_type="xlm-roberta"),
    "mobilebert": tiny.MOBILEBERT,
    "electra": tiny.BERT.replace(model_type="electra", pooler="none", embedding_size=6, embedding_projection="output"),
    "distilbert": tiny.BERT.replace(model_type="distilbert", type_vocab_size=0, pooler="none"),
    "camembert": tiny.ROBERTA.replace(model_type="camembert"),
    "albert": tiny.BERT.replace(
        model_type="albert", embedding_size=6, embedding_projection="output", layer_groups=1, hidden_dropout=0.0
    ),
    "deberta-v2": tiny.DEBERTA,
    "modernbert": tiny.MODERNBERT,
}
families = pytest.mark.parametrize("family", FAMILIES)


def test_table_has_every_family() -> None:
    assert [*TABLE] == [*FAMILIES] and TINY.keys() == LARGER.keys() == FAMILIES.keys(), (
        "add a row to docs/reference/families.md, and a tiny network to tiny_adaptation.py and to LARGER here"
    )
    for family, row in TABLE.items():
        assert (row["Family"], row["Tokenizer"].strip("`")) == (FAMILIES[family].title, FAMILIES[family].tokenizer)
        assert FAMILIES[family].tokenizer == tiny_adaptation.FAMILIES[TINY[family]][1]
    cells = {cell for row in TABLE.values() for cell in list(row.values())[3:]}
    assert cells <= {"yes", *(f"{word} ({number})" for number in MESSAGES for word in ("no", "not static"))}


@pytest.mark.usefixtures("eager")
@families
def test_round_trip_and_padding(family: str, tmp_path: Path) -> None:
    folder = tiny_adaptation.write_encoder(tmp_path / "model", TINY[family])
    model = pb.from_pretrained(folder)
    model.save_pretrained(tmp_path / "copy")
    content = json.loads((folder / "config.json").read_text())
    assert json.loads((tmp_path / "copy/config.json").read_text()) == content and content["model_type"] == family
    stored, copied = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "copy"))
    assert stored.keys() == copied.keys()
    for name, tensor in stored.items():
        np.testing.assert_array_equal(copied[name], tensor)
    assert model.tokenizer is not None
    # Both are longer than the texts: for trigrams, the last token has the padding token as its neighbour.
    short, padded = (model.tokenizer(["the cat", "a mat on"], max_length=size, pad_to=size) for size in (12, 15))
    expected, logits = (model(inputs)["prediction_logits"].numpy() for inputs in (short, padded))
    real = np.asarray(short["input_mask"], bool)
    assert not real[:, -1].any()
    # 2e-5 is what two correct float32 implementations reach at these sizes (tests/goldens/huggingface/README.md).
    np.testing.assert_allclose(
        logits[:, : real.shape[1]][real], expected[real], rtol=0, atol=2e-5 * np.abs(expected).max()
    )


@families
def test_pruning(family: str) -> None:
    config = LARGER[family]
    problems = PruneConfig(heads=2, intermediate_size=7, embedding_rank=3, layers=1, max_length=19).problems(config)
    _expect(family, "Prune", lambda: [_refuse(problem) for problem in problems])


@pytest.mark.usefixtures("eager")
@families
def test_trimming(family: str, tmp_path: Path) -> None:
    folder = tiny_adaptation.write_encoder(tmp_path / "model", TINY[family])
    (tmp_path / "texts.txt").write_text("the cat sat on a mat\n", encoding="utf-8")
    texts = [tmp_path / "texts.txt"]
    _expect(family, "Trim", lambda: trim_vocabulary(folder, texts, tmp_path / "small", dev_text=texts))
    if TABLE[family]["Trim"] == "yes":
        small, whole = (pb.from_pretrained(path) for path in (tmp_path / "small", folder))
        assert small.config == whole.config.replace(
            vocab_size=small.config.vocab_size, pad_token_id=small.config.pad_token_id
        )
        assert small.config.vocab_size < whole.config.vocab_size
        states, expected = (
            model.features(model.tokenizer(["the cat sat on a mat"], max_length=11), ["hidden_states"])["hidden_states"]
            for model in (small, whole)
        )
        np.testing.assert_array_equal(states[-1], expected[-1])


@families
def test_mediapipe(family: str, tmp_path: Path) -> None:
    vocabulary = tiny_adaptation.vocabulary(tmp_path, FAMILIES[family].tokenizer, FAMILIES[family].tokenizer_layout)
    _expect(family, "MediaPipe", lambda: check_client(tiny_distillation.TASK, vocabulary, has_pairs=False))


@families
def test_java_has_the_tokenizer(family: str) -> None:
    """`tests/android` runs a bundle of each kind."""
    source = ROOT / "android_app/core/src/main/java/org/pocketbert/bundle/TokenizerKind.java"
    kinds = re.findall(r"^  ([A-Z_]+)\(.*\{$", source.read_text(encoding="utf-8"), re.M)
    assert [kind.lower() for kind in kinds] == [*TOKENIZER_RULES]
    layouts = {"byte_bpe": "ByteBpeLayout", "unigram": "UnigramLayout"}
    in_java = FAMILIES[family].tokenizer.upper() in kinds
    if name := layouts.get(FAMILIES[family].tokenizer):
        layout = source.parents[1] / f"tokenizer/{name}.java"
        words = re.findall(r"^  ([A-Z_]+)\(", layout.read_text(encoding="utf-8"), re.M)
        in_java &= FAMILIES[family].tokenizer_layout in [word.lower() for word in words]
    assert in_java == (TABLE[family]["Java"] == "yes")


@pytest.mark.usefixtures("eager")
@pytest.mark.one_of_each("distilbert", "deberta-v2")
@families
def test_teacher_and_student(family: str, tmp_path: Path) -> None:
    """A student of the teacher's first layer learns from attention, hidden states and logits."""
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher", LARGER[family].replace(num_layers=2))
    method = TinyBERT(
        max_length=19,
        intermediate_epochs=1,
        prediction_epochs=1,
        intermediate_learning_rate=3e-3,
        prediction_learning_rate=3e-3,
    )
    data = tiny_distillation.task_data(teacher)
    student = pb.TeacherLayers((1,))
    columns = ("Teacher by logits", "Teacher by hidden states", "Student")
    assert {TABLE[family][column] for column in columns} == {"yes"}
    pb.distill(student, data, tmp_path / "run", teacher=teacher, method=method)
    before, after = (pb.from_pretrained(path) for path in (teacher, tmp_path / "run/model"))
    assert after.config == before.config.replace(num_layers=1)
    weights, others = (model.weights_by_path() for model in (before, after))
    kernels = [path for path in others if path.startswith("encoder.layers.0.") and path.endswith("kernel")]
    assert kernels and all((weights[path].numpy() != others[path].numpy()).any() for path in kernels)


@families
def test_recipes(family: str) -> None:
    static = [recipe for recipe in RECIPES.values() if recipe.activations == "static"]
    _expect(family, "Recipes", lambda: [check_blocks(recipe, LARGER[family]) for recipe in static])
    for name in ("float32", "float16", "dynamic_wi8", "dynamic_wi4"):
        check_blocks(RECIPES[name], LARGER[family])


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("family", [name for name, config in LARGER.items() if config.block in ("rotary", "relative")])
def test_training_refuses_to_round_other_blocks(family: str, tmp_path: Path) -> None:
    start = tiny_distillation.write_teacher(tmp_path / "model", LARGER[family].replace(num_layers=1))
    data = tiny_distillation.task_data(start)
    with pytest.raises(UserError, match="qat is for plain and bottleneck blocks; received (rotary|relative) blocks"):
        pb.finetune(
            start, data, tmp_path / "run", config=pb.FinetuneConfig(max_length=19), run=pb.RunConfig(qat="dynamic_wi8")
        )
    assert not (tmp_path / "run").exists()


# BERT, RoBERTa, XLM-R and MobileBERT pass the gate in other tests of the default run.
@pytest.mark.one_of_each("distilbert", "deberta-v2")
@families
def test_float32_passes_the_gate(family: str, tmp_path: Path) -> None:
    model = tiny_distillation.write_teacher(tmp_path / "model", LARGER[family].replace(num_layers=1))
    pb.export(model, tmp_path / "bundle", recipe="float32", lengths=(19,))
    assert json.loads((tmp_path / "bundle/verification.json").read_text())["passed"]


def _expect(family: str, column: str, action: Callable[[], object]) -> None:
    """Requires the table's cell: `yes`, or the number of the message that begins the refusal."""
    cell = TABLE[family][column]
    if cell == "yes":
        action()
        return
    with pytest.raises(UserError) as refusal:
        action()
    assert MESSAGES[cell.rpartition("(")[2].removesuffix(")")] in str(refusal.value)


def _refuse(problem: str) -> None:
    raise UserError(problem)
