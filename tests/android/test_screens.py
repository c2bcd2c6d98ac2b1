"""The documentation shows the app's screens as Robolectric draws them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
DRAWN = ROOT / "android_app" / "app" / "target" / "screens"


@pytest.mark.android
@pytest.mark.parametrize("name", ["app-main.png", "app-measuring.png"])
def test_committed_pictures_show_the_screens(name: str) -> None:
    drawn, committed = (
        np.asarray(Image.open(path).convert("RGB"), np.int16)
        for path in (DRAWN / name, ROOT / "docs" / "how-to" / name)
    )
    assert drawn.shape == committed.shape, f"copy {DRAWN / name} to docs/how-to"
    # Another processor may round the edges of letters otherwise.
    assert np.abs(drawn - committed).mean() < 0.5, f"copy {DRAWN / name} to docs/how-to"
