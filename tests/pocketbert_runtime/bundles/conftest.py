from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="package")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `export_bundle`."""
    import runtime_bundles

    return runtime_bundles.export_bundle(tmp_path_factory.mktemp("runtime"))
