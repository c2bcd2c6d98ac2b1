"""Attention maps for one model or two, and [SEP] shares, in a folder with a page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketbert.data.examples import Examples
from pocketbert.errors import raise_if_any
from pocketbert.files import write_bytes, write_json, write_text
from pocketbert.hub.names import shown
from pocketbert.model import from_pretrained
from pocketbert.output_folders import check_directory, check_inputs, new_directory
from pocketbert.plots.attention_maps import AttentionMaps, attention_maps, checked_tokenizer, paired_layers
from pocketbert.plots.attention_page import page
from pocketbert.plots.drawing import maps_png, shares_png
from pocketbert.plots.separator_shares import SeparatorShares, separator_shares

KIND = "folder of attention plots"
PAGE_FILE, MAPS_FILE = "report.html", "attention.png"
SHARES_FILE, SHARES_PLOT_FILE = "separators.json", "separators.png"


@dataclass(frozen=True, kw_only=True)
class AttentionPlots:
    """Results of `plot_attention`.

    Attributes:
      maps: maps by model (`model`, or `teacher` and `student`); empty without a text.
      shares: shares by model; empty without examples.
    """

    maps: Mapping[str, AttentionMaps]
    shares: Mapping[str, SeparatorShares]


def plot_attention(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    text: str | None = None,
    text_pair: str | None = None,
    examples: Examples | None = None,
    student: str | os.PathLike[str] | None = None,
    layers: Sequence[int] = (),
    student_layers: Sequence[int] = (),
    max_tokens: int = 32,
    max_length: int = 128,
    batch_size: int = 32,
    overwrite: bool = False,
) -> AttentionPlots:
    """Draws attention maps for a text, and the share of [SEP] among the most attended tokens in many texts.

    `output` gets `report.html`; for a text `attention.png`; for examples `separators.png` and `separators.json`.

    Args:
      model: model directory, or a name that `from_pretrained` knows.
      output: folder to create.
      text: text to draw.
      text_pair: second text to draw, for a pair.
      examples: texts or pairs for the shares; see `separator_shares`.
      student: second model directory, drawn next to the first one (MobileBERT, figure 3). Depth, heads and tokenizer
        may differ.
      layers: the model's layers to draw; see `paired_layers` for two models.
      student_layers: the student's layers to draw.
      max_tokens: the drawn text's maximum number of tokens.
      max_length: the examples' maximum sequence length.
      batch_size: examples per step.
      overwrite: replace a folder with attention plots.
    Raises:
      UserError: an argument is invalid, a model cannot be read, or the folder exists. Nothing is written.
    """
    raise_if_any(_problems(text, text_pair, examples, student, layers, student_layers), "plot attention")
    check_directory(output, KIND, overwrite=overwrite)
    check_inputs(output, (model, student, None if examples is None else examples.source))
    places = {"model": model} if student is None else {"teacher": model, "student": student}
    models = {name: from_pretrained(path) for name, path in places.items()}
    for each in models.values():
        # Before minutes with the other one.
        checked_tokenizer(each, max_length if examples else 0, "max_length")
    chosen: dict[str, Sequence[int]] = {"model": layers}
    if student is not None:
        pairs = paired_layers(models["teacher"], models["student"], layers, student_layers)
        chosen = dict(zip(models, pairs, strict=True))
    maps, shares = {}, {}
    if text is not None:
        for name, each in models.items():
            maps[name] = attention_maps(each, text, text_pair, layers=chosen[name], max_tokens=max_tokens)
    if examples is not None:
        for name, each in models.items():
            shares[name] = separator_shares(
                each, examples.texts, examples.pairs, max_length=max_length, batch_size=batch_size
            )
    named = {name: shown(path) for name, path in places.items()}
    first = next(iter(models.values()))
    assert first.tokenizer is not None
    separator = first.tokenizer.vocabulary.tokens()[first.tokenizer.sep_token_id]
    with new_directory(output, KIND, overwrite=overwrite) as folder:
        maps_image = shares_image = None
        if maps:
            title = "Attention maps of " + " and ".join(str(Path(*Path(path).parts[-2:])) for path in named.values())
            maps_image = maps_png([(n.capitalize(), m) for n, m in maps.items()], title)
            write_bytes(folder / MAPS_FILE, maps_image)
        if shares:
            assert examples is not None
            shares_image = shares_png(shares, separator)
            write_bytes(folder / SHARES_PLOT_FILE, shares_image)
            write_json(folder / SHARES_FILE, _recorded(named, shares, examples, max_length, separator))
        texts = [sentence for sentence in (text, text_pair) if sentence]
        content = page(named, texts, maps, shares, separator, maps_png=maps_image, shares_png=shares_image)
        write_text(folder / PAGE_FILE, content)
    return AttentionPlots(maps=maps, shares=shares)


def _problems(
    text: str | None,
    text_pair: str | None,
    examples: Examples | None,
    student: str | os.PathLike[str] | None,
    layers: Sequence[int],
    student_layers: Sequence[int],
) -> list[str]:
    problems = []
    if text is None and examples is None:
        problems.append("pass a text or a file of texts; received neither")
    for name, value in (("text", text), ("text_pair", text_pair)):
        if value is not None and not value.strip():
            problems.append(f"{name} must not be empty; received {value!r}; pass other text, or leave it out")
    if text_pair is not None and text is None:
        problems.append("text_pair needs a text; received none; pass both")
    if (layers or student_layers) and text is None:
        problems.append("layers are for the maps of a text; received no text; leave them out")
    if student_layers and student is None:
        problems.append("student_layers need a student; received none; pass one, or leave them out")
    return problems


def _recorded(
    places: Mapping[str, str],
    shares: Mapping[str, SeparatorShares],
    examples: Examples,
    max_length: int,
    separator: str,
) -> dict[str, object]:
    return {
        "source": examples.source,
        "texts": len(examples),
        "max_length": max_length,
        "separator": separator,
        "models": [
            {"model": name, "directory": places[name]}
            | {f"top_{k}": list(counts) for k, counts in sorted(share.counts.items())}
            for name, share in shares.items()
        ],
    }
