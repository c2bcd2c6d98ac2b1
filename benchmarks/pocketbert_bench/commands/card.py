"""Write a bundle's model card again, with latencies.

Export leaves a card, README.md, in every bundle: origin, licences, scores, size and verification, in the format for
Hugging Face's hub. This command writes it again and adds this bundle's latencies from your result files. It replaces
your changes to the card.

Example:
  pocketbert bench bundles/sst2 --output=runs/sst2.json
  pocketbert card bundles/sst2 --results=runs/sst2.json --name="Film reviews"
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import BundlePath, FilePath, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class CardCommandOptions:
    """Bundle and measurements.

    Attributes:
      bundle: the bundle's folder.
      results: result files from `pocketbert bench`.
      name: the model's name (default: the folder's name).
    """

    GROUP: ClassVar = "Model card"

    bundle: BundlePath = option(positional="BUNDLE")
    results: tuple[FilePath, ...] = ()
    name: str | None = None


OPTIONS = (CardCommandOptions,)


def run(options: Options) -> None:
    """Runs the command."""
    chosen = options[CardCommandOptions]
    from pocketbert.errors import UserError
    from pocketbert_bench import results
    from pocketbert_bench.benchmark import latencies_of
    from pocketbert_export.bundles.bundle import Bundle
    from pocketbert_export.bundles.model_card import write_card

    folder = Path(chosen.bundle)
    Bundle.open(folder)
    latencies = latencies_of(folder, [results.read(path) for path in chosen.results])
    if chosen.results and not latencies:
        raise UserError(
            f"a result file must measure this bundle; received {', '.join(chosen.results)} without its "
            f"model.tflite; run pocketbert bench {folder}"
        )
    print(write_card(folder, chosen.name or folder.resolve().name, latencies))
