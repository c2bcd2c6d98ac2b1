"""Draw plots and one self-contained HTML page from result files.

RESULT is a file from `pocketbert bench --output`, a phone or `make bench`. The report compares within a run only;
runs and runtimes get their own sections. Next to phone results it shows the MobileBERT paper's latencies, marked as
such.

Example:
  pocketbert report runs/sst2_int8.json --output=runs/report
  pocketbert report runs/sst2_int8.json runs/phones/pixel_4_3fa2c1.json --output=runs/both
  pocketbert report --try=bundles/sst2 --output=runs/demo
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import DirectoryPath, FilePath, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Report options.

    Attributes:
      results: result files; none for --try alone.
      output: output folder for report.html, plots and results.
      title: the page's heading.
      try_: a bundle to try in your browser. Writes a page with LiteRT.js to the folder OUTPUT-try, for any web server;
        npm fetches LiteRT.js and a tokenizer on first use.
      bundles: bundles with verification records and model cards to show.
      overwrite: replace the folder.
    """

    GROUP: ClassVar = "Report"

    results: tuple[FilePath, ...] = option((), positional="RESULT…")
    output: DirectoryPath
    title: str = "PocketBERT report"
    try_: DirectoryPath | None = None
    bundles: tuple[DirectoryPath, ...] = ()
    overwrite: bool = False


OPTIONS = (ReportOptions,)


def run(options: Options) -> None:
    """Runs the command."""
    chosen = options[ReportOptions]
    from pocketbert.errors import UserError
    from pocketbert.output_folders import TRY_KIND, beside, check_together, together
    from pocketbert_bench import report, results
    from pocketbert_bench.bundle_outcomes import completed
    from pocketbert_bench.try_page import check_tryable, write_try_page
    from pocketbert_export.bundles.bundle import Bundle, read_verification
    from pocketbert_export.bundles.model_card import CARD_FILE

    if not chosen.results and not chosen.try_:
        raise UserError("report takes at least one RESULT, or --try; received none")
    output, page = Path(chosen.output), beside(chosen.output, "try")
    bundle = Bundle.open(chosen.try_) if chosen.try_ else None
    kinds = ({str(output): report.KIND} if chosen.results else {}) | ({str(page): TRY_KIND} if bundle else {})
    check_together(kinds, overwrite=chosen.overwrite)
    if bundle is not None:
        check_tryable(bundle)
    pages: list[Path] = []
    with together() as group:
        if chosen.results:
            bundles = [Path(bundle) for bundle in chosen.bundles]
            pages.append(
                report.build_report(
                    [completed(results.read(path), bundles) for path in chosen.results],
                    output,
                    verification={
                        Path(bundle).resolve().name: read_verification(Path(bundle)) for bundle in chosen.bundles
                    },
                    cards={Path(bundle).resolve().name: Path(bundle) / CARD_FILE for bundle in chosen.bundles},
                    title=chosen.title,
                    overwrite=chosen.overwrite,
                    group=group,
                )
            )
        if bundle is not None:
            pages.append(write_try_page(bundle, page, title=chosen.title, overwrite=chosen.overwrite, group=group))
    for page_path in pages:
        print(page_path)
