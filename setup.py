"""Puts the wheel's copy of `pocketbert_runtime` into a folder of its own; pyproject.toml has everything else.

The distribution pocketbert-runtime, from the folder runtime, owns the package at its usual place. pip removes the files
of a distribution without looking for other owners, so this one has a copy elsewhere, and a .pth file adds that folder
to the end of Python's path: the copy answers where pocketbert-runtime is not installed (docs/adr/0014-runtime.md).
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGE, FOLDER = "pocketbert_runtime", "pocketbert_wheel"


class BuildWithCopy(build_py):
    """Moves the package in a wheel; an editable installation reads the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib)
        # An earlier build in this folder left its copy.
        shutil.rmtree(built / FOLDER, ignore_errors=True)
        (built / FOLDER).mkdir()
        (built / PACKAGE).rename(built / FOLDER / PACKAGE)
        (built / f"{FOLDER}.pth").write_text(f"{FOLDER}\n", encoding="utf-8")


setup(cmdclass={"build_py": BuildWithCopy})
