"""What holds for rotary blocks, and how the rest refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import tiny_distillation

import pocketbert as pb
from pocketbert.checkpoints.supernet import inheritance_problems
from pocketbert.configs import TaskConfig
from pocketbert.distillation.initialization import plan_student
from pocketbert.pruning.config import PruneConfig
from pocketbert.recipes import RECIPES
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert_bench.compression.structures import structures
from pocketbert_bench.onnx_baseline import _problem
from pocketbert_export.recipes import check_blocks

CONFIG = tiny.MODERNBERT.replace(num_layers=10)


@pytest.mark.parametrize("layers", [(1,), (1, 2, 3, 4), (1, 5, 9, 10), (1, 3, 5, 7)])
def test_layers_of_the_same_kinds_are_taken(layers: tuple[int, ...]) -> None:
    assert plan_student(pb.TeacherLayers(layers), CONFIG).layers == layers
    options = PruneConfig(teacher_layers=layers, heads=None, intermediate_size=None, embedding_rank=None, max_length=9)
    assert options.problems(CONFIG) == []


@pytest.mark.parametrize(
    ("layers", "received"),
    [
        ((2, 3), "2 (local) as layer 1 (global); take layers 1,2"),
        ((4, 5), "4 (global) as layer 1 (global); take layers 1,2"),
        ((1, 4), "4 (global) as layer 2 (local); take"),
        ((1, 2, 3, 5), "5 (local) as layer 4 (global); take layers 1,2,3,4"),
    ],
)
def test_layers_of_other_kinds_are_named(layers: tuple[int, ...], received: str) -> None:
    with pytest.raises(pb.UserError) as refusal:
        plan_student(pb.TeacherLayers(layers), CONFIG)
    assert f"local and global layers keep their kind; received layer {received}" in str(refusal.value)
    options = PruneConfig(teacher_layers=layers, heads=None, intermediate_size=None, embedding_rank=None, max_length=9)
    assert received in "; ".join(options.problems(CONFIG))


def test_compression_cuts_only_layers_that_keep_their_kind() -> None:
    rotary = CONFIG.rotary
    assert rotary is not None
    found = [structure for _, structure in structures(CONFIG, small_embedding=True)]
    assert {len(structure.layers) for structure in found} == {*range(1, 11)}
    assert all(rotary.unlike_layers(structure.layers) == [] for structure in found)
    assert {structure.heads for structure in found} == {5}


def test_methods_name_the_blocks_that_they_hold_for(tmp_path: Path) -> None:
    rule = "is for plain and bottleneck blocks; received rotary blocks (modernbert)"
    assert f"a supernet {rule}; search without one" in inheritance_problems(CONFIG, CONFIG)
    assert _problem(CONFIG, "classification") == "it is for plain blocks; received rotary blocks (modernbert)"
    for recipe in RECIPES.values():
        if recipe.activations != "static" and recipe.name != "mixed":
            check_blocks(recipe, CONFIG)
            continue
        with pytest.raises(pb.UserError) as refusal:
            check_blocks(recipe, CONFIG)
        assert f"recipe='{recipe.name}' is for plain" in str(refusal.value)
        assert "received rotary blocks (modernbert); choose float32, float16, dynamic_wi8 or" in str(refusal.value)
    teacher = tiny_distillation.write_teacher(tmp_path / "model", tiny.MODERNBERT.replace(num_layers=1))
    data = tiny_distillation.task_data(teacher)
    with pytest.raises(pb.UserError) as refusal:
        config = FinetuneConfig(max_length=19)
        pb.finetune(teacher, data, tmp_path / "run", config=config, run=RunConfig(qat="dynamic_wi8"))
    assert f"qat {rule}; train with qat=none" in str(refusal.value)
    pairs = TaskConfig(kind="classification", labels=("no", "yes"), pairs="separate")
    with pytest.raises(pb.UserError, match="pairs='separate' needs a head without layers of its own; received Modern"):
        pb.from_preset(CONFIG, pairs)
