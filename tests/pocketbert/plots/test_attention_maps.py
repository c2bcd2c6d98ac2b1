"""Attention maps against transformers; pairing of layers; what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
from attention_models import Reference

import pocketbert as pb
from pocketbert.errors import UserError
from pocketbert.plots import drawing
from pocketbert.plots.attention_maps import attention_maps, paired_layers

TEXT, PAIR = "the cats weren't charming", "a warm film"


@pytest.mark.one_of_each("None-bert", "a warm film-roberta", "None-xlm-roberta")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("pair", [None, PAIR])
def test_maps_equal_transformers(kind: str, pair: str | None, directory: Callable[[str], Path]) -> None:
    reference = Reference(directory(kind))
    maps = attention_maps(pb.from_pretrained(directory(kind)), TEXT, pair, layers=(3, 1), max_tokens=29)
    ids, expected = reference(TEXT, pair)
    names = reference.tokenizer.convert_ids_to_tokens(ids)
    # Byte-level BPE shows a space as Ġ; these texts have no other bytes that look different.
    assert maps.tokens == tuple(name.replace("Ġ", "▁") for name in names)
    assert maps.layers == (3, 1) and not maps.truncated
    # Two float32 networks of up to three layers.
    np.testing.assert_allclose(maps.probs, np.stack([expected[2], expected[0]]), atol=2e-5)


@pytest.mark.usefixtures("eager")
def test_long_texts_are_truncated(directory: Callable[[str], Path]) -> None:
    ids, expected = Reference(directory("bert"))(TEXT, PAIR, max_length=9)
    maps = attention_maps(pb.from_pretrained(directory("bert")), TEXT, PAIR, max_tokens=9)
    assert maps.truncated and len(maps.tokens) == len(ids) == 9
    np.testing.assert_allclose(maps.probs, np.stack(expected), atol=2e-5)
    exact = attention_maps(pb.from_pretrained(directory("bert")), "a warm film", max_tokens=5)
    assert not exact.truncated and exact.tokens == ("[CLS]", "a", "warm", "film", "[SEP]")


@pytest.mark.usefixtures("eager")
def test_bytes_are_shown_decoded(directory: Callable[[str], Path]) -> None:
    model = pb.from_pretrained(directory("roberta"))
    tokens = attention_maps(model, "a café\n", max_tokens=29).tokens
    assert "".join(tokens[1:-2]) == "a▁café" and tokens[-2] == "·"
    # Two bytes in two tokens.
    assert attention_maps(model, "ž", max_tokens=29).tokens[1:-1] == ("�", "�")


@functools.cache
def of_depth(layers: int) -> pb.Model:
    return pb.Model(tiny.BERT.replace(num_layers=layers), initialize=False)


@pytest.mark.parametrize(
    ("depths", "layers", "student_layers", "expected"),
    [
        ((12, 4), (), (), ((3, 6, 9, 12), (1, 2, 3, 4))),
        ((3, 5), (), (), ((1, 2, 3), (2, 3, 5))),
        ((12, 4), (), (4, 1), ((12, 3), (4, 1))),
        ((12, 4), (9,), (), ((9,), (3,))),
        ((12, 4), (1, 12), (1, 4), ((1, 12), (1, 4))),
    ],
)
def test_layers_are_paired(
    depths: tuple[int, int], layers: tuple[int, ...], student_layers: tuple[int, ...], expected: object
) -> None:
    assert paired_layers(*map(of_depth, depths), layers, student_layers) == expected


@pytest.mark.parametrize(
    ("layers", "student_layers", "message"),
    [
        ((4,), (), r"layers must be in the uniform map \(3,6\); received 4; pass the layers of both models"),
        ((7, 1), (3,), "layers must be 1 to 6; received 7; choose others; student_layers must be 1 to 2; received 3"),
        ((1, 2), (1,), "give one student layer for each layer; received 1,2 and 1"),
    ],
)
def test_unpaired_layers_are_refused(layers: tuple[int, ...], student_layers: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        paired_layers(of_depth(6), of_depth(2), layers, student_layers)


@pytest.mark.usefixtures("eager")
def test_attention_must_be_finite(directory: Callable[[str], Path]) -> None:
    model = pb.from_pretrained(directory("bert"))
    model.weights_by_path()["encoder.layers.0.attention.query.kernel"].assign(np.full([30, 30], np.nan, np.float32))
    with pytest.raises(UserError, match="attention maps: the attention must be finite"):
        attention_maps(model, TEXT, max_tokens=29)


def test_models_need_a_tokenizer() -> None:
    with pytest.raises(UserError, match="the model must have a tokenizer; its directory has no vocabulary files"):
        attention_maps(pb.Model(tiny.BERT, initialize=False), TEXT)


def test_colours_show_square_roots() -> None:
    probs = np.array([[0.0, 1.0, 0.0], [1 / 9, 4 / 9, 4 / 9], [0.25, 0.25, 0.5]], np.float32)
    image = drawing.coloured(probs)
    colours = [[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in drawing.PALETTE]
    # Four colours: at square roots of 0, 1/3, 2/3 and 1. Rows of the image are queries.
    assert image[0].tolist() == [colours[0], colours[3], colours[0]]
    assert image[1].tolist() == [colours[1], colours[2], colours[2]]
    np.testing.assert_allclose(image[2, 0], np.mean(colours[1:3], axis=0), atol=0.51)
