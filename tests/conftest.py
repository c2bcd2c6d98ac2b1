"""What all tests share: where the real data is, and that nobody fails to notice when it is not used.

Tests marked `data` read ../shared (beside the checkout) or real weights from the package index. Without them they
are skipped, and the terminal summary says so; with CI=true they fail. With CI=true the session also fails when the
data is there, such tests were selected and yet none ran.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
_CI = os.environ.get("CI", "").lower() == "true"
# Node ids of tests marked `data`, on the process that prints the summary.
_selected: set[str] = set()
_ran: set[str] = set()


def _unavailable(reason: str) -> None:
    if _CI:
        pytest.fail(f"CI=true and {reason}", pytrace=False)
    pytest.skip(reason)


# First, because pytest selects by markers in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks a case of a `one_of_each` test as nightly if earlier cases have all values, or if it is not named."""
    covered: dict[str, set[tuple[str, int]]] = {}
    absent: dict[str, set[str]] = {}
    for item in items:
        marker = item.get_closest_marker("one_of_each")
        if marker is None or not isinstance(item, pytest.Function):
            continue
        test = item.nodeid.partition("[")[0]
        if marker.args:
            absent.setdefault(test, set(marker.args)).discard(item.callspec.id)
            if item.callspec.id not in marker.args:
                item.add_marker(pytest.mark.nightly)
            continue
        # Cases share the objects of their values, which need not be hashable.
        values = {(name, id(value)) for name, value in item.callspec.params.items()}
        covered_here = covered.setdefault(test, set())
        if values <= covered_here:
            item.add_marker(pytest.mark.nightly)
        covered_here |= values
    unknown = [f"{test}[{name}]" for test, names in absent.items() for name in names]
    # One case may be selected by its name.
    if unknown and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"one_of_each must name cases of its test; there is no {', '.join(unknown)}")


def pytest_collection_finish() -> None:
    # Test modules import it; where none of those collected does, it is not worth an import.
    if "tensorflow" in sys.modules:
        import cheap_tensorflow

        cheap_tensorflow.use()
    if "pocketbert_export.tflite.runtimes" in sys.modules:
        import forked_runtime

        forked_runtime.use()


@pytest.fixture
def graph_optimizer() -> Iterator[None]:
    """TensorFlow optimizes graphs, as it does for users; see `cheap_tensorflow`."""
    import cheap_tensorflow

    cheap_tensorflow.set_optimizer(enabled=True)
    yield
    cheap_tensorflow.set_optimizer(enabled=False)


@pytest.fixture
def eager() -> Iterator[None]:
    """TensorFlow makes no graphs; see `cheap_tensorflow.eager`."""
    import cheap_tensorflow

    with cheap_tensorflow.eager():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("data") and not SHARED.is_dir():
        _unavailable("the real data is not there: ../shared, beside the checkout")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "data" in report.keywords:
        _selected.add(report.nodeid)
        if report.when == "call" and not report.skipped:
            _ran.add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    not_run = len(_selected - _ran)
    if not_run:
        terminalreporter.section("REAL DATA", red=True, bold=True)
        terminalreporter.line(
            f"{not_run} of {len(_selected)} tests marked `data` did not run "
            f"(../shared is {'there' if SHARED.is_dir() else 'ABSENT'}); CI=true makes this an error.",
            red=True,
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _CI and SHARED.is_dir() and _selected and not _ran:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and reference outputs; for tests marked `data`."""
    if not SHARED.is_dir():
        _unavailable("the real data is not there: ../shared, beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def goldens(shared: Path) -> Path:
    """Outputs of the baselines' own code."""
    return shared / "goldens"


@pytest.fixture(scope="session")
def minilm_directory() -> Iterator[Path]:
    """The model directory of all-MiniLM-L6-v2, from its pinned wheel; for tests marked `data`."""
    from pocketbert.data import assets
    from pocketbert.errors import UserError

    try:
        folder = assets.minilm()
    except UserError as error:
        _unavailable(str(error))
    yield folder


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Small written files."""
    return ROOT / "tests" / "fixtures"
