"""`pocketbert plot ffn`: surfaces against arithmetic by hand, files, and what is refused."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

from pocketbert.checkpoints.huggingface import write_config
from pocketbert.cli import main
from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.plots.ffn import ffn_surface

# float64, but TensorFlow's exact gelu has a constant with fewer digits: 3e-9 here.
TOLERANCE = 1e-7
POINTS = (-15.0, -10.0, -5.0, 0.0, 5.0)


def gelu(x: float) -> float:
    """The exact form."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def bert(x: float, y: float) -> float:
    """Two layers; 41 of 30 features give an inner width of 2·41 // 30 = 2."""
    for _ in range(2):
        output = 2 * gelu(x + y)
        x, y = (x + output) / 2, (y + output) / 2
    return (x + y) / 2


def searched(x: float, y: float) -> float:
    """The expressions below; 20 and 13 of 30 features give inner widths of 1, at least."""
    for _ in range(2):
        output = math.tanh(gelu_tanh(x + y))
        x, y = (x + output) / 2, (y + output) / 2
    # `mul` truncates the input to its first feature.
    output = max((x + y) * x, 0.0)
    x, y = (x + output) / 2, (y + output) / 2
    return (x + y) / 2


def networks(*expressions: str) -> EncoderConfig:
    return tiny.EFFICIENTBERT.replace(
        num_layers=len(expressions), feedforward=FeedForwardConfig(expressions=expressions)
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (tiny.BERT.replace(num_layers=2), bert),
        (networks("tanh(linear2_2(gelu(linear2_2(x))))", "linear1_3(relu(mul(linear1_3(x),x)))"), searched),
    ],
    ids=["activation", "expressions"],
)
def test_surface_matches_arithmetic(config: EncoderConfig, expected: object) -> None:
    assert callable(expected)
    by_hand = [[expected(x, y) for y in POINTS] for x in POINTS]
    np.testing.assert_allclose(ffn_surface(config, len(POINTS)), by_hand, rtol=TOLERANCE)


def test_bottlenecks_are_refused() -> None:
    with pytest.raises(UserError, match="needs layers without bottleneck; received model type mobilebert"):
        ffn_surface(tiny.MOBILEBERT)


def test_command_draws_several_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Squares of squares: beyond float64.
    huge = networks(*["linear4_2(relu(mul(linear4_2(x),x)))"] * 4)
    (tmp_path / "huge.json").write_text(json.dumps(write_config(huge, ())))
    line = ["plot", "ffn", f"--model={tmp_path / 'huge.json'}", "--compare-with=efficientbert"]
    line.append(f"--output={tmp_path / 'out'}")
    assert main(line) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'report.html'}\n"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".pocketbert", "ffn.png", "report.html"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert (
        base64.b64encode((tmp_path / "out" / "ffn.png").read_bytes()).decode() in page
        and "http" not in page
        and "<script" not in page
    )
    assert "leaky_relu(linear2_3(gelu(linear2_3(x))))" in page
    assert page.count("values are too large and stay empty") == 1
    width, height = Image.open(tmp_path / "out" / "ffn.png").size
    assert width > 1.5 * height
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert main([*line, "--overwrite"]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ffn", "--text=a film"], "--text is for attention; received ffn"),
        (["ffn", "--compare-with=efficientbert"], "models must be different; received efficientbert, efficientbert"),
        (["ffn", "--compare-with=efficientber"], "a model must be a preset, a model directory or a config.json"),
        (["ffn", "--compare-with=mobilebert"], "needs layers without bottleneck"),
        (["attention", "--text=a", "--compare-with=efficientbert"], "--compare-with is for ffn; received attention"),
    ],
)
def test_bad_input_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", *arguments, "--model=efficientbert", f"--output={tmp_path / 'out'}"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
