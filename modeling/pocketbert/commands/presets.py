"""List the architectures known by name.

Each line shows sizes, encoder parameters (including the pooler), floating-point operations for a text with 128
tokens (two per multiply-add), weights for pocketbert fetch, and the source. For bottleneck architectures, there are
two hidden sizes: feature map / block. A star marks feed-forward networks with an expression per layer (--format=json
shows them); they use a part of the given width.

Example:
  pocketbert presets
  pocketbert presets --format=json
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, ClassVar, Literal

from pocketbert.commands.command_line import Options

LENGTH = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class PresetsOptions:
    """Output format.

    Attributes:
      format: a table, or JSON for programs.
    """

    GROUP: ClassVar = "Output"

    format: Literal["table", "json"] = "table"


OPTIONS = (PresetsOptions,)


def run(options: Options) -> None:
    """Prints the presets on stdout."""
    rows = preset_rows()
    print(json.dumps(rows, indent=2) if options[PresetsOptions].format == "json" else _table(rows))


def preset_rows() -> list[dict[str, Any]]:
    """Returns one record per preset, as in `--format=json`."""
    from pocketbert.data.assets import asset_of_package
    from pocketbert.flops import encoder_flops
    from pocketbert.presets import PRESETS

    return [
        {
            "name": name,
            "layers": preset.config.num_layers,
            "hidden_size": preset.config.hidden_size,
            "block_size": preset.config.block_size,
            "attention_heads": preset.config.num_attention_heads,
            "intermediate_size": preset.config.intermediate_size,
            "feed_forwards": preset.config.num_feedforward_networks,
            "expressions": list(preset.config.feedforward.expressions) if preset.config.feedforward else None,
            "parameters": preset.parameters,
            f"flops_at_{LENGTH}": encoder_flops(preset.config, LENGTH),
            "weights": asset_of_package(preset.weights) if preset.weights else None,
            "source": preset.source,
        }
        for name, preset in PRESETS.items()
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    header = (
        "preset",
        "layers",
        "hidden",
        "heads",
        "feed-forward",
        "parameters",
        f"FLOPs at {LENGTH}",
        "fetch",
        "source",
    )
    cells = [header]
    for row in rows:
        hidden, block = row["hidden_size"], row["block_size"]
        stacked = f"{row['feed_forwards']} x " if row["feed_forwards"] > 1 else ""
        cells.append(
            (
                row["name"],
                str(row["layers"]),
                str(hidden) if hidden == block else f"{hidden}/{block}",
                str(row["attention_heads"]),
                f"{stacked}{row['intermediate_size']}{'*' if row['expressions'] else ''}",
                f"{row['parameters']:,}",
                f"{row[f'flops_at_{LENGTH}'] / 1e9:.2f} B",
                row["weights"] or "-",
                row["source"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        aligned = [
            cell.rjust(width) if 1 <= index <= 6 else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)
