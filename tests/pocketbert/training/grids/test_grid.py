"""Grid syntax, and the grids from papers."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest

from pocketbert.errors import UserError
from pocketbert.training.config import FIXED_IN_A_GRID, FinetuneConfig, RunConfig
from pocketbert.training.grids.points import Grid, options_at, parse_grid, point_name
from pocketbert.training.grids.published import PUBLISHED, check_kind


def parse(*texts: str) -> Grid:
    return parse_grid(texts, (FinetuneConfig, RunConfig), fixed=FIXED_IN_A_GRID)


def test_last_option_changes_fastest() -> None:
    grid = parse("learning-rate=1e-5,0.00002", "schedule=linear,constant", "patience= none, 3")
    assert [point_name(point) for point in grid.points()] == [
        "learning_rate=1e-05,schedule=linear,patience=none",
        "learning_rate=1e-05,schedule=linear,patience=3",
        "learning_rate=1e-05,schedule=constant,patience=none",
        "learning_rate=1e-05,schedule=constant,patience=3",
        "learning_rate=2e-05,schedule=linear,patience=none",
        "learning_rate=2e-05,schedule=linear,patience=3",
        "learning_rate=2e-05,schedule=constant,patience=none",
        "learning_rate=2e-05,schedule=constant,patience=3",
    ]
    options = options_at((FinetuneConfig(batch_size=7), RunConfig()), grid)
    assert options[5] == (FinetuneConfig(batch_size=7, learning_rate=2e-5, schedule="linear"), RunConfig(patience=3))
    assert [type(value) for value in (options[0][0].learning_rate, options[1][1].patience)] == [float, int]


def test_point_names_fit_folder_names() -> None:
    longest = {
        "learning_rate": 1.2345678e-05, "schedule": "constant", "warmup_ratio": 0.0625, "epochs": 10,
        "batch_size": 4096, "max_length": 512, "weight_decay": 0.0001, "clip_norm": None, "precision": "bfloat16",
        "evaluation_steps": 100000, "patience": 100, "stride": 128, "max_question_tokens": 64,
        "head_pooling": "first", "max_steps": 100000, "layer_decay": 0.95, "label_smoothing": 0.1, "dropout": 0.15,
        "triplet_margin": 0.25,
    }  # fmt: skip
    names = {field.name for kind in (FinetuneConfig, RunConfig) for field in dataclasses.fields(kind)}
    # Grids vary no options that are true or false.
    assert {*longest} == names - {*FIXED_IN_A_GRID, "calibrate"}
    assert re.fullmatch(r"[\w=,.+-]+", point_name(longest))  # type: ignore[arg-type]
    # File systems take 255 bytes.
    with pytest.raises(UserError, match="must fit into 255 bytes, because they name a folder; received 19 options"):
        options_at((FinetuneConfig(), RunConfig()), Grid({name: (value,) for name, value in longest.items()}))
    longest = dict(list(longest.items())[:-5])
    assert len(point_name(longest)) < 255  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ["large"],
            "a grid is option=value,value or one of bert, mobilebert, tinybert, minilmv2, minilmv2-xnli, "
            "minilmv2-squad2, minilmv2-mlqa, hsk; received 'large'",
        ),
        (["rate=1"], "a grid may vary learning_rate, head_pooling, schedule,.*, patience, .*; received rate"),
        (["seed=1,2"], "received seed"),
        (["checkpoint_seconds=1"], "received checkpoint_seconds"),
        (["epochs=1.5"], "epochs must be a whole number; received '1.5'"),
        (["learning_rate=fast"], "learning_rate must be a number or off; received 'fast'"),
        (["learning_rate=inf"], "learning_rate must be finite; received 'inf'"),
        (["warmup_ratio=none"], "warmup_ratio must be a number; received 'none'"),
        (["clip_norm="], "clip_norm must be a number or off; received ''"),
        (["schedule="], "schedule must be one of linear, cosine, constant; received ''"),
        (["epochs=2,3,2"], "epochs needs different values; received 2,3,2"),
        (["learning_rate=1e-5,0.00001"], "received 1e-05,1e-05"),
        (["epochs=2", "epochs=3"], "epochs= must be given once; received a second; list all"),
        (["rate=1", "epochs=x", "huge"], "received rate; epochs must be a whole number; received 'x'; a grid is"),
        ([], "a grid needs an option with values; received none"),
    ],
)
def test_malformed_grids_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(*texts)


def test_invalid_values_are_refused_once() -> None:
    grid = Grid({"learning_rate": (0.0, -1.0), "epochs": (1, 2, 3)})
    with pytest.raises(UserError) as refused:
        options_at((FinetuneConfig(),), grid)
    assert str(refused.value).count("learning_rate must be positive") == 2
    with pytest.raises(UserError, match=r"a grid may vary .*; received seed, rate"):
        options_at((FinetuneConfig(),), Grid({"seed": (1,), "rate": (2,)}), fixed=FIXED_IN_A_GRID)


# From the papers: BERT A.3; MobileBERT 4.2; TinyBERT 4.2; MiniLMv2 C; Marginal Utility Diminishes B.
PAPERS: dict[str, dict[str, Any]] = {
    "bert": {"batch_size": {16, 32}, "learning_rate": {5e-5, 3e-5, 2e-5}, "epochs": {2, 3, 4}},
    "mobilebert": {
        "batch_size": {16, 32, 48},
        "learning_rate": {1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 8e-5, 9e-5, 10e-5},
        "epochs": {*range(2, 11)},
    },
    "tinybert": {"batch_size": {16, 32}, "learning_rate": {1e-5, 2e-5, 3e-5}, "epochs": {3}},
    "minilmv2": {
        "batch_size": {32},
        "learning_rate": {1e-5, 1.5e-5, 2e-5, 3e-5, 5e-5},
        "epochs": {3, 5, 10},
        "max_length": {128},
        "warmup_ratio": {0.1},
        "weight_decay": {0.01},
    },
    "minilmv2-xnli": {"batch_size": {128}, "learning_rate": {5e-5, 6e-5}, "epochs": {5}, "max_length": {128}},
    "minilmv2-squad2": {
        "batch_size": {32},
        "learning_rate": {3e-5, 6e-5, 8e-5, 9e-5},
        "epochs": {3},
        "max_length": {384},
        "warmup_ratio": {0.1},
        "weight_decay": {0.01},
    },
    "minilmv2-mlqa": {"batch_size": {32}, "learning_rate": {5e-5, 6e-5}, "epochs": {3}, "max_length": {512}},
    "hsk": {"learning_rate": {2e-5, 5e-5}, "epochs": {5, 10}, "schedule": {"linear"}},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_grids_match_the_papers(name: str) -> None:
    grid = parse(name)
    assert {option: {*values} for option, values in grid.values.items()} == PAPERS[name]
    assert len(options_at((FinetuneConfig(),), grid)) == math.prod(map(len, PAPERS[name].values()))


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("classification", ["minilmv2-squad2", "minilmv2-mlqa"]),
        ("regression", ["minilmv2-xnli", "minilmv2-squad2", "minilmv2-mlqa"]),
        ("span", ["tinybert", "minilmv2", "minilmv2-xnli", "hsk"]),
    ],
)
def test_grids_for_other_kinds_are_refused(kind: str, refused: list[str]) -> None:
    check_kind([name for name in PUBLISHED if name not in refused], kind)
    for name in refused:
        with pytest.raises(UserError, match=f"{name} is a grid for .*; received a {kind} task; choose one"):
            check_kind(["bert", name], kind)


def test_own_values_override_the_papers() -> None:
    for texts in (("mobilebert", "epochs=3"), ("epochs=3", "mobilebert")):
        assert parse(*texts).values["epochs"] == (3,)
        assert len(parse(*texts).points()) == 30
