"""Time bundles on this machine in one call; the result can print, save and report itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketbert.errors import UserError
from pocketbert.files import check_different, sha256
from pocketbert_bench import host, report, results
from pocketbert_bench.configurations import Configuration, LiteRT
from pocketbert_bench.results import ResultFile, Weights
from pocketbert_export.bundles.bundle import MODEL_FILE, VERIFICATION_FILE, Bundle, read_verification
from pocketbert_export.bundles.model_card import CARD_FILE, Latency


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Result of `benchmark`. Its string is the table from `pocketbert bench`.

    Attributes:
      result: raw samples in microseconds, sizes in bytes, machine and versions, as in a result file.
      bundles: the measured folders.
    """

    result: ResultFile
    bundles: tuple[Path, ...]

    def __str__(self) -> str:
        return report.table(self.result)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes a result file, as `pocketbert bench --output` does.

        Args:
          path: the `.json` file to write.
          overwrite: replace an existing file.
        Raises:
          UserError: the file exists or cannot be written.
        """
        results.write(path, self.result, overwrite=overwrite)

    def report(
        self, path: str | os.PathLike[str], *, title: str = "PocketBERT report", overwrite: bool = False
    ) -> Path:
        """Writes `report.html`, a self-contained page, and its plots as PNG files; returns the page's path.

        Args:
          path: output folder.
          title: the page's heading.
          overwrite: replace an existing report.
        Raises:
          UserError: the folder exists or cannot be written.
        """
        names = labels_of(self.bundles)
        return report.build_report(
            [self.result],
            Path(path),
            verification={
                names[bundle]: read_verification(bundle)
                for bundle in self.bundles
                # A bundle that could not be measured may lack it.
                if (bundle / VERIFICATION_FILE).is_file()
            },
            cards={names[bundle]: bundle / CARD_FILE for bundle in self.bundles},
            title=title,
            overwrite=overwrite,
        )


def benchmark(
    bundles: Sequence[Bundle | str | os.PathLike[str]],
    *,
    lengths: Sequence[int] | None = None,
    threads: Sequence[int] = (1,),
    quick: bool = False,
    weights: Weights | None = None,
    name: str | None = None,
    baselines: Sequence[Configuration] = (),
    runtimes: Sequence[LiteRT] = ("litert",),
    weight_cache: str | os.PathLike[str] | None = None,
) -> Benchmark:
    """Times bundles on this machine, each configuration in its own process, in shuffled rounds.

    Every bundle must reproduce its golden outputs before it is timed. If a bundle does not, is damaged or crashes, the
    result records it as failed with a reason, and the others are still measured.

    Example:
      ```python
      measured = pb.benchmark(["bundles/student"], lengths=(32, 128), threads=(1, 2))
      print(measured)
      measured.report("report")
      ```

    Args:
      bundles: opened bundles or their folders.
      lengths: sequence lengths in tokens; None uses all in the bundle.
      threads: numbers of threads.
      quick: shortened run; the result records this.
      weights: `trained` or `random`, recorded in the result; None records that it is unknown.
      name: the network's name; None uses each folder's name.
      baselines: other libraries' exports to time in the same rounds.
      runtimes: `litert` (the interpreter), `litert-compiled` (CompiledModel) or both.
      weight_cache: folder for XNNPACK's weight caches, with `litert-compiled`; None runs without.
    Raises:
      UserError: no bundle, a missing folder, a bundle twice, a length that no bundle has, or invalid lengths or numbers
        of threads.
    """
    paths = [bundle.directory if isinstance(bundle, Bundle) else Path(bundle) for bundle in bundles]
    if not paths:
        raise UserError("benchmark needs at least one bundle; received none; pb.export makes one")
    if missing := [str(path) for path in paths if not path.is_dir()]:
        raise UserError(f"a bundle must be a folder written by pocketbert export; received {', '.join(missing)}")
    result = host.bench_bundles(
        paths,
        lengths=lengths,
        threads=threads,
        quick=quick,
        baselines=baselines,
        weights=weights,
        names={path: name for path in paths} if name else None,
        labels=labels_of(paths),
        runtimes=runtimes,
        weight_cache=None if weight_cache is None else Path(weight_cache),
    )
    return Benchmark(result=result, bundles=tuple(paths))


def labels_of(bundles: Sequence[Path]) -> dict[Path, str]:
    """Names bundles in tables by folder, because they may share a recipe; a `UserError` if one is named twice."""
    check_different("bundles", bundles)
    names = [path.resolve().name for path in bundles]
    if len(set(names)) != len(names):
        names = [str(path) for path in bundles]
    return dict(zip(bundles, names, strict=True))


def latencies_of(bundle: Path, measured: Sequence[ResultFile]) -> list[Latency]:
    """Returns a bundle's latencies from result files, for its model card; files are matched by SHA-256."""
    digest = sha256(bundle / MODEL_FILE)
    return [
        Latency(
            length=measurement.length,
            threads=measurement.threads,
            median_ms=measurement.summary.median_us / 1000,
            runtime=f"{measurement.runtime.name} {measurement.runtime.version}",
            machine=result.machine.product or result.machine.cpu,
        )
        for result in measured
        for measurement in result.measurements
        if measurement.model_sha256 == digest and measurement.summary and measurement.runtime and measurement.length
    ]
