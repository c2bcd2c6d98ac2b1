"""Describe the machine: processor, memory, system, versions, load and temperature."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pocketbert_bench.schema import note, optional_note

PACKAGES = (
    "ai-edge-litert",
    "ai-edge-quantizer",
    "matplotlib",
    "numpy",
    "onnxruntime",
    "pocketbert",
    "tensorflow",
    "tensorflow-text",
    "tf-keras",
    "tokenizers",
    "torch",
    "transformers",
)
_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_THERMAL_ZONES = Path("/sys/class/thermal")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The measured machine."""

    cpu: str = note("processor, as named by the system")
    architecture: str = note("instruction set architecture, for example x86_64 or aarch64")
    instruction_sets: tuple[str, ...] = note("extensions that determine the matrix kernels")
    cores: int = note("number of processors available to the process", minimum=1)
    memory_bytes: int = note("physical memory", minimum=1)
    system: str = note("operating system and kernel, or Android's build fingerprint")
    python: str | None = note("Python's version; null without Python")
    packages: dict[str, str] = note("package or library name to version")
    governor: str | None = note("frequency governor; null if the system does not show it")
    load_average: tuple[float, ...] = note("averages over 1, 5 and 15 minutes, before the first run; may be empty")
    product: str | None = optional_note("maker and model of a phone; null for computers")


@dataclass(frozen=True, kw_only=True)
class Thermal:
    """Temperature at one moment."""

    status: str = note("Android's thermal status in lower case; `read` if only a temperature is known; `unknown`")
    celsius: float | None = note("temperature of the hottest zone; null if unknown")


def machine() -> Machine:
    """Describes this machine now."""
    import psutil

    cpuinfo = (_read(Path("/proc/cpuinfo")) or "").splitlines()
    names = (line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name"))
    return Machine(
        cpu=next(names, platform.processor() or platform.machine()),
        architecture=platform.machine(),
        instruction_sets=_instruction_sets(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        system=_system_name(),
        python=platform.python_version(),
        packages=package_versions(),
        governor=_read(_CPU),
        load_average=tuple(round(value, 2) for value in os.getloadavg()),
    )


def package_versions() -> dict[str, str]:
    """Returns the installed packages' versions, for `PACKAGES`."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def thermal() -> Thermal:
    """Reads the hottest thermal zone's temperature; `status` is `unknown` if the system shows none."""
    readings = [_read(path / "temp") for path in sorted(_THERMAL_ZONES.glob("thermal_zone*"))]
    degrees = [int(reading) / 1000 for reading in readings if reading and reading.lstrip("-").isdigit()]
    return Thermal(status="read" if degrees else "unknown", celsius=max(degrees, default=None))


def commit() -> str | None:
    """Returns the checkout's commit, with `-dirty` if tracked files differ from it; None outside a checkout."""
    folder = Path(__file__).parent
    try:
        name = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return name.stdout.strip() or None


def cpu_features() -> list[str]:
    """Returns the first processor's model and instruction sets, as Linux lists them; empty on other systems."""
    first = (_read(Path("/proc/cpuinfo")) or "").split("\n\n")[0].splitlines()
    pairs = [[part.strip() for part in line.split(":", 1)] for line in first if ":" in line]
    names = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU implementer", "CPU part")
    return [f"{name}: {value}" for name, value in pairs if name in names]


def _instruction_sets() -> tuple[str, ...]:
    # These determine the matrix kernels.
    shown = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith(("flags", "Features")):
            flags = set(line.split(":", 1)[1].split())
            return tuple(name for name in shown if name in flags)
    return ()


def _system_name() -> str:
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
    return f"{distribution or platform.system()}, {platform.system()} {platform.release()}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
