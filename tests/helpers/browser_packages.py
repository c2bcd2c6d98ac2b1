"""What tests in a browser need: Chromium, and npm's packages."""

from __future__ import annotations

import os

import chromium
import pytest

from pocketbert.errors import UserError
from pocketbert_bench.try_page import PACKAGES, archive_of


def require() -> None:
    """Skips the test without them, or fails it where `.ci/run` has installed a browser and npm."""
    try:
        if chromium.PROGRAM is None:
            raise UserError("Chromium is not installed")
        for package in PACKAGES:
            archive_of(package)
    except UserError as error:
        if os.environ.get("POCKETBERT_BROWSER_TEST") == "required":
            pytest.fail(f"POCKETBERT_BROWSER_TEST=required and {error}", pytrace=False)
        pytest.skip(str(error))
