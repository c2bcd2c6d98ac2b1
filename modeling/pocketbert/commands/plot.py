r"""Draw attention maps for your text, the share of [SEP] among the most attended tokens, or feed-forward networks.

PLOT is attention or ffn. attention: with --text, every map shows one head's attention probabilities, with tokens on
both axes. --student draws a second model next to the first one (MobileBERT, figure 3); by default, the uniform map
pairs student layers with the layers of --model. Depth, number of heads and tokenizer may differ.

With --input, a table counts texts per layer with [SEP] among the top 1 and top 3 tokens, by attention from [CLS],
averaged over heads ("Marginal Utility Diminishes", figures 6 and 14). --input is a .csv, .tsv or .jsonl table, or a
file with one text per line.

--output gets report.html (one self-contained page), attention.png, and with --input separators.png and
separators.json with the counts.

ffn: a surface per model shows how nonlinear its feed-forward networks are (EfficientBERT, figure 5): the mean output
of the last layer for inputs with two features from -15 to 5, without attention, with weights of 1 and biases of 0, and
with the mean of residual and network instead of layer normalization. --model and --compare-with are presets, model
directories or config.json files; weights are not used. --output gets report.html and ffn.png.

Example:
  pocketbert plot attention --model=models/all-minilm --text="a gripping film" --output=runs/attention
  pocketbert plot attention --model=runs/teacher/model --student=runs/student/model --text="a gripping film" \
    --layers=2,12 --student-layers=1,6 --output=runs/attention-pair
  pocketbert plot attention --model=runs/sst2/model --input=glue/SST-2/dev.tsv --text-column=sentence \
    --output=runs/separators
  pocketbert plot ffn --model=efficientbert --compare-with=bert_base_uncased,efficientbert_base --output=runs/ffn
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.task_options import TableOptions
from pocketbert.errors import UserError, did_you_mean, raise_if_any
from pocketbert.options import DirectoryPath, FilePath, ModelPath, PresetOrPath, option, option_problems

if TYPE_CHECKING:
    from pocketbert.data.examples import Examples
    from pocketbert.plots.separator_shares import SeparatorShares

_PLOTS = ("attention", "ffn")
_FOR_MAPS = ("text", "text_pair", "student", "layers", "student_layers", "max_tokens")
_FOR_TEXTS = ("input", "max_length", "batch_size")
_FOR_TABLES = ("text_column", "pair_column", "separator", "skip_bad_rows")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """Models, texts and output.

    Attributes:
      plot: what to draw.
      model: model directory; for ffn also a preset or a config.json.
      output: output folder.
      text: text to draw attention maps for.
      text_pair: second text in a pair.
      student: second model directory, drawn next to the first one.
      layers: layers in --model to draw, counted from 1 (default: all, or those paired with --student's layers).
      student_layers: layers in --student to draw, one for each in --layers.
      max_tokens: maximum tokens in a map; longer texts are truncated.
      input: file with texts, for the share of [SEP].
      max_length: maximum sequence length for texts in --input.
      batch_size: texts in --input per step.
      compare_with: more models to draw next to the first one in ffn.
      overwrite: replace an existing folder with the same plots.
    """

    GROUP: ClassVar = "Plot"

    plot: str = option(positional="PLOT", suggestions=lambda: _PLOTS)
    model: PresetOrPath
    output: DirectoryPath
    text: str | None = None
    text_pair: str | None = None
    student: ModelPath | None = None
    layers: tuple[int, ...] = ()
    student_layers: tuple[int, ...] = ()
    max_tokens: int = 32
    input: FilePath | None = None
    max_length: int = 128
    batch_size: int = 32
    compare_with: tuple[PresetOrPath, ...] = ()
    overwrite: bool = False

    def __post_init__(self) -> None:
        raise_if_any(option_problems(self), "plot")


OPTIONS = (PlotOptions, OptionGroup(TableOptions, without=("label_column", "label_separator")))


def check(options: Options) -> None:
    """Raises a `UserError` for another plot."""
    plot = options[PlotOptions].plot
    if plot not in _PLOTS:
        raise UserError(f"PLOT must be {' or '.join(_PLOTS)}; received {plot}{did_you_mean(plot, _PLOTS)}")


def run(options: Options) -> None:
    """Draws; prints the shares and the page's path."""
    chosen = options[PlotOptions]
    if chosen.plot == "ffn":
        _plot_ffn(options)
        return
    if chosen.compare_with:
        raise UserError(f"--compare-with is for ffn; received {chosen.plot}; pass --student for a second model")
    examples = _read(options)
    from pocketbert.plots.attention import PAGE_FILE, plot_attention

    arguments = {name: getattr(chosen, name) for name in (*_FOR_MAPS, "max_length", "batch_size", "overwrite")}
    plot = plot_attention(chosen.model, chosen.output, examples=examples, **arguments)
    for name, shares in plot.shares.items():
        print(f"{name}\n{_table(shares)}\n" if len(plot.shares) > 1 else f"{_table(shares)}\n")
    print(Path(chosen.output) / PAGE_FILE)


def _plot_ffn(options: Options) -> None:
    chosen = options[PlotOptions]
    if unused := options.changed(*_FOR_MAPS, *_FOR_TEXTS, *_FOR_TABLES):
        raise UserError(f"{', '.join(unused)} is for attention; received ffn; leave it out")
    from pocketbert.plots.ffn import PAGE_FILE, plot_ffn

    plot_ffn([chosen.model, *chosen.compare_with], chosen.output, overwrite=chosen.overwrite)
    print(Path(chosen.output) / PAGE_FILE)


def _read(options: Options) -> Examples | None:
    """Reads `--input`, if there is one."""
    from pocketbert.data.examples import Examples
    from pocketbert.data.readers.rows import read_utf8
    from pocketbert.data.readers.tables import SUFFIXES, read_table

    path, table = options[PlotOptions].input, options[TableOptions]
    if path is not None and Path(path).suffix.lower() in SUFFIXES:
        return read_table(path, **table.rows)[0]
    unused = options.changed(*_FOR_TABLES)
    if unused:
        raise UserError(f"{', '.join(unused)} is for tables ({', '.join(SUFFIXES)}); received {path or 'no --input'}")
    if path is None:
        return None
    texts = [line.removesuffix("\r") for line in read_utf8(path).split("\n") if line.strip()]
    return Examples(texts, None, None, [str(index) for index in range(len(texts))], path)


def _table(shares: SeparatorShares) -> str:
    """Lays out counts and shares by layer."""
    tops = sorted(shares.counts)
    lines = ["layer" + "".join(f"top {k}".rjust(20) for k in tops) + f"   of {shares.texts:,} texts"]
    for layer in range(len(shares.counts[tops[0]])):
        cells = (f"{shares.counts[k][layer]:,} ({shares.shares(k)[layer]:.1%})" for k in tops)
        lines.append(f"{layer + 1:>5}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)
