from __future__ import annotations

import os

import pytest

from pocketbert.processes import stderr_on_failure


def test_native_stderr_is_shown_only_on_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with stderr_on_failure():
        os.write(2, b"W0000 Ignored output_format.\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
    with pytest.raises(ValueError, match="no such op"), stderr_on_failure():
        os.write(2, b"error: no such op\n")
        raise ValueError("no such op")
    assert capfd.readouterr().err == "error: no such op\n"
