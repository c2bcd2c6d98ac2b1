"""Measure latency on phones: run the app in `android_app` over adb, one process per repeat, in shuffled rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from pocketbert import files, progress
from pocketbert import output_folders as outputs
from pocketbert.errors import UserError, raise_if_any
from pocketbert.notation import argument
from pocketbert_bench import adb, phone_app, phone_plan, results
from pocketbert_bench.adb import Disconnected, Phone, PhoneError
from pocketbert_bench.bundle_outcomes import outcomes_of
from pocketbert_bench.phone_plan import Kept, PhonePlan
from pocketbert_bench.results import ResultFile

# A crash may be due to one configuration; so many failures in sequence mean that the phone has a problem.
FAILURES_IN_A_ROW = 5
# Distinguishes these results on the phone from those that a user made there.
RUN_PREFIX = "adb-"


@dataclass(frozen=True, kw_only=True)
class DeviceOutcome:
    """Result from one phone.

    Attributes:
      name: name of its files: model and a digest of the serial number; no file contains the number.
      problem: sentence why it did not finish; None if it did.
      result: all measurements, including earlier runs; None if there are none.
      path: path of the result file.
    """

    name: str
    problem: str | None
    result: ResultFile | None
    path: Path


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A phone that can run the app.

    Attributes:
      phone: the connection.
      identity: the phone's serial number, equal over cable and network; if it has none, the connection's.
      model: product name.
      system: Android's build fingerprint.
    """

    phone: Phone
    identity: str
    model: str
    system: str

    @property
    def name(self) -> str:
        """Name in files and progress messages."""
        digest = hashlib.sha256(self.identity.encode()).hexdigest()[:6]
        return re.sub(r"[^a-z0-9]+", "_", self.model.lower()).strip("_") + f"_{digest}"


def bench_phones(
    serials: Sequence[str], plan: PhonePlan, output: Path, *, apk: Path | None = None, overwrite: bool = False
) -> list[DeviceOutcome]:
    """Measures a plan on several phones at the same time; returns one outcome per phone, in order.

    A phone's results are saved at once: repeat the call to measure the rest.

    Args:
      serials: serial numbers as listed by `adb devices`.
      plan: configurations and order.
      output: folder for one result file per phone.
      apk: the app, for phones without it or with another build; None if all phones have it.
      overwrite: discard the folder's content.
    Raises:
      UserError: a phone cannot be used, the folder belongs to another plan, or there is nothing to measure.
    """
    if not plan.turns():
        raise UserError(
            "; ".join(
                dict.fromkeys(configuration.problem for configuration in plan.configurations if configuration.problem)
            )
        )
    phone_plan.check_delegate(plan)
    outputs.check_held(output, phone_plan.KIND)
    tool = adb.find()
    subjects = find_phones(tool, serials)
    with outputs.held_directory(output, phone_plan.KIND):
        phone_plan.open_folder(output, plan, overwrite=overwrite)
        stop = threading.Event()
        with ThreadPoolExecutor(max_workers=len(subjects)) as pool:
            running = [pool.submit(_Session(subject, plan, output, apk, stop).run) for subject in subjects]
            try:
                return [future.result() for future in running]
            except BaseException:
                stop.set()
                raise


def find_phones(tool: str, serials: Sequence[str]) -> list[Subject]:
    """Finds phones by serial number; raises a `UserError` with all that are missing or cannot run the app."""
    connected = adb.states(tool)
    problems = [problem for serial in serials if (problem := adb.problem(serial, connected))]
    raise_if_any(problems, "phones")
    subjects: list[Subject] = []
    for serial in serials:
        phone = Phone(tool, serial)
        try:
            properties = phone.properties()
        except PhoneError as error:
            problems.append(f"{serial}: {error}")
            continue
        api, abis = properties.get("ro.build.version.sdk", "0"), properties.get("ro.product.cpu.abilist", "")
        if not api.isdecimal() or int(api) < phone_app.OLDEST_API:
            release = properties.get("ro.build.version.release", "unknown")
            problems.append(
                f"{serial} must have Android 8.0 (API {phone_app.OLDEST_API}) or newer; it has {release} (API {api})"
            )
        if phone_app.ABI not in abis.split(","):
            problems.append(f"{serial} must run {phone_app.ABI} code; it runs {abis or 'none that it names'}")
        identity = properties.get("ro.serialno") or properties.get("ro.boot.serialno") or serial
        if same := [subject.phone.serial for subject in subjects if subject.identity == identity]:
            problems.append(f"a phone must be named once; {same[0]} and {serial} are one phone")
        model, system = properties.get("ro.product.model", "phone"), properties.get("ro.build.fingerprint", "unknown")
        subjects.append(Subject(phone=phone, identity=identity, model=model, system=system))
    raise_if_any(problems, "phones")
    return subjects


class _Session:
    """Runs the plan on one phone."""

    def __init__(
        self, subject: Subject, plan: PhonePlan, output: Path, apk: Path | None, stop: threading.Event
    ) -> None:
        self._phone = subject.phone
        self._subject = subject
        self._plan = plan
        self._apk = apk
        self._stop = stop
        self._kept = Kept(output / subject.name, plan)
        self._path = output / f"{subject.name}.json"

    def run(self) -> DeviceOutcome:
        """Measures the missing turns; every failure becomes the outcome's sentence."""
        problem = None
        try:
            if self._kept.work().pending:
                app = self._prepare_app()
                self._kept.same_phone({"phone": self._subject.model, "system": self._subject.system, "app": app})
                with self._pushed() as folders:
                    self._measure(folders)
        except (PhoneError, UserError, OSError) as error:
            # Other phones continue, whatever is wrong with this one's folder or bundles.
            problem = str(error)
            progress.log_info(f"{self._subject.name}: {problem}")
        what = "the GPU of a" if self._plan.delegate == "gpu" else "a"
        result = None
        try:
            result = self._kept.join(f"Latency of exported bundles on {what} {self._subject.model}")
            if result:
                result = dataclasses.replace(result, outcomes=outcomes_of(self._plan.configurations))
                results.write(self._path, result)
        except OSError as error:
            problem = problem or str(error)
        if not result and not problem:
            problem = f"nothing was measured: {self._kept.first_problem}"
        return DeviceOutcome(name=self._subject.name, problem=problem, result=result, path=self._path)

    def _prepare_app(self) -> str:
        """Ensures that the app is on the phone; returns its SHA-256."""
        installed = self._installed()
        if self._apk and installed != files.sha256(self._apk):
            progress.log_info(f"{self._subject.name}: installing {self._apk.name}")
            try:
                self._phone.install(self._apk)
            except PhoneError as error:
                if "INSTALL_FAILED_UPDATE_INCOMPATIBLE" in str(error):
                    raise PhoneError(
                        "the app on the phone was signed with another key; remove it: "
                        f"adb uninstall {phone_app.APPLICATION}"
                    ) from None
                raise
            installed = self._installed()
        if not installed:
            raise PhoneError(
                f"the app must be on the phone; it is not; build it with make android and name it by {argument('apk')}"
            )
        return installed

    def _installed(self) -> str | None:
        answer = self._phone.ask("pm", "path", phone_app.APPLICATION)
        paths = [line.removeprefix("package:").strip() for line in answer.splitlines() if line.endswith("base.apk")]
        return self._phone.sha256(paths).get(paths[0]) if paths else None

    @contextlib.contextmanager
    def _pushed(self) -> Iterator[Mapping[Path, str]]:
        """Keeps the bundles on the phone while the block runs: local folder → name on the phone."""
        # The app creates its own folders, because it does not own folders that adb creates.
        phone_app.start(self._phone, phone_app.SCREEN)
        folders: dict[Path, str] = {}
        try:
            for directory in dict.fromkeys(
                self._plan.configurations[index].model_path.parent for index, _ in self._kept.work().pending
            ):
                folders[directory] = folder_name(directory)
                there = f"{phone_app.FILES}/bundles/{folders[directory]}"
                self._phone.push({f"{there}/{name}": directory / name for name in bundle_files(directory)})
            yield folders
        finally:
            # Without the phone, they stay; the next run removes them.
            with contextlib.suppress(PhoneError):
                self._phone.shell("am", "force-stop", phone_app.APPLICATION)
                for name in folders.values():
                    self._phone.shell("rm", "-rf", f"{phone_app.FILES}/bundles/{name}")
                self._phone.shell("sh", "-c", f"rm -f {phone_app.FILES}/results/{RUN_PREFIX}*.json")

    def _measure(self, folders: Mapping[Path, str]) -> None:
        missing, failures = self._kept.work().pending, 0
        total = len(self._plan.turns())
        with progress.bar(total, self._subject.name, "run", initial=total - len(missing)) as turns:
            for turn in missing:
                if self._stop.is_set():
                    raise PhoneError("interrupted; the same command resumes")
                try:
                    self._take(turn, folders, turns)
                    failures = 0
                except Disconnected:
                    raise
                except (PhoneError, UserError) as error:
                    configuration = self._plan.configurations[turn[0]]
                    where = f"{configuration.label} at {configuration.length} tokens, repeat {turn[1]}"
                    progress.log_info(f"{self._subject.name}: {where}: {error}")
                    self._kept.note(turn, str(error))
                    failures += 1
                    if failures == FAILURES_IN_A_ROW:
                        raise PhoneError(f"{failures} runs failed one after another; the last: {error}") from error
                turns.update()

    def _take(self, turn: tuple[int, int], folders: Mapping[Path, str], bar: tqdm) -> None:
        """Runs one repeat in a new process and keeps its result."""
        configuration, run = self._plan.configurations[turn[0]], RUN_PREFIX + secrets.token_hex(6)
        assert configuration.length is not None
        options: dict[str, str | int] = {
            "length": configuration.length,
            "threads": configuration.threads,
            "delegate": self._plan.delegate,
            "affinity": self._plan.affinity,
            "weight_cache": "on" if self._plan.weight_cache else "off",
            "repeat": turn[1],
        }
        self._phone.shell("am", "force-stop", phone_app.APPLICATION)
        # When the display sleeps, the app loses the focus, and with it the fast cores.
        self._phone.shell("input", "keyevent", "KEYCODE_WAKEUP", check=False)
        self._phone.shell("wm", "dismiss-keyguard", check=False)
        command = phone_app.start_command(run, folders[configuration.model_path.parent], options)
        phone_app.start(self._phone, phone_app.BENCHMARK, command)

        def tell(line: phone_app.Progress) -> None:
            bar.set_postfix_str(f"{configuration.label} {configuration.length}: {line.state} {line.done}/{line.of}")

        last = phone_app.follow(self._phone, run, tell)
        if not last.result:
            raise phone_app.AppError(last.reason or f"the app ended its run as {last.state} and gave no reason")
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder) / "result.json"
            self._phone.pull(f"{phone_app.FILES}/results/{run}.json", here)
            if problem := self._kept.keep(turn, here):
                raise phone_app.AppError(problem)


def bundle_files(directory: Path) -> list[str]:
    """Lists a bundle's files: `bundle.json` and its entries; raises a `UserError` if it violates the schema."""
    # Imports TensorFlow, which takes seconds.
    from pocketbert_export.bundles.bundle import read_description

    return ["bundle.json", *read_description(directory)["files"]]


def folder_name(directory: Path) -> str:
    """Names a bundle's folder on a phone: valid in the app, and different for different content."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", directory.resolve().name).lstrip("._-")[:48]
    return f"{name or 'bundle'}-{files.sha256(directory / 'bundle.json')[:8]}"
