"""Draw plots and one self-contained HTML page from result files.

RESULT is a file from `pocketbert bench --output`, a phone or `make bench`. The report compares within a run only;
runs and runtimes get their own sections. Next to phone results it shows the MobileBERT paper's latencies, marked as
such.

Example:
  pocketbert report runs/sst2_int8.json --output=runs/report
  pocketbert report runs/sst2_int8.json runs/phones/pixel_4_3fa2c1.json --output=runs/both
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import DirectoryPath, FilePath, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of the report.

    Attributes:
      results: result files.
      output: output folder for report.html, plots and results.
      title: heading of the page.
      bundles: bundles with verification records and model cards to show.
      overwrite: replace the folder.
    """

    GROUP: ClassVar = "Report"

    results: tuple[FilePath, ...] = option(positional="RESULT…")
    output: DirectoryPath
    title: str = "PocketBERT report"
    bundles: tuple[DirectoryPath, ...] = ()
    overwrite: bool = False


OPTIONS = (ReportOptions,)


def run(options: Options) -> None:
    """Runs the command."""
    own = options[ReportOptions]
    from pocketbert_bench import report, results
    from pocketbert_bench.benchmark import verification_of
    from pocketbert_export.model_card import CARD_FILE

    page = report.build_report(
        [results.read(path) for path in own.results],
        Path(own.output),
        verification={Path(bundle).resolve().name: verification_of(Path(bundle)) for bundle in own.bundles},
        cards={Path(bundle).resolve().name: Path(bundle) / CARD_FILE for bundle in own.bundles},
        title=own.title,
        overwrite=own.overwrite,
    )
    print(page)
