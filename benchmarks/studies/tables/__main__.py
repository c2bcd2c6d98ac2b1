"""Write all tables and pictures: `python -m studies.tables`. Needs `benchmarks` on PYTHONPATH."""

from __future__ import annotations

from studies.tables import BLOCKS, PICTURES

if __name__ == "__main__":
    for block in BLOCKS:
        block.write()
    for picture in PICTURES:
        picture.write()
