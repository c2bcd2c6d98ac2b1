"""What a py_test runs: pytest on one file, with the project's settings."""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
    # Bazel's folders hold links to the sources, which nothing may write beside.
    sys.dont_write_bytecode = True
    sys.exit(pytest.main(["-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir=.", *sys.argv[1:]]))
