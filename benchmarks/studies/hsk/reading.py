"""Read a whole store in random batches and print the memory of the process, for `hsk.speed`.

python -m studies.hsk.reading FOLDER BATCH_SIZE LENGTH

Private memory is the process's own. Mapped pages of the store are the system's: it takes them back at any time, so a
store may be larger than memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from pocketbert.data.teacher_cache import TeacherCache

# Of the batches; buffers of that many have been made and freed.
_WARM = 20


def main(arguments: list[str]) -> None:
    """Prints `{"before": …, "peak": …, "mapped": …}` in bytes: private memory after some batches, and its peak."""
    folder, batch_size, length = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    store = TeacherCache.open(folder, verify=False)
    order = np.random.default_rng(0).permutation(len(store))
    before = peak = mapped = 0
    for turn, first in enumerate(range(0, len(order), batch_size)):
        store.read(order[first : first + batch_size], length)
        private, mapped = memory()
        if turn < _WARM:
            before = max(before, private)
        peak = max(peak, private)
    print(json.dumps({"before": before, "peak": peak, "mapped": mapped}))


def memory() -> tuple[int, int]:
    """Private memory and mapped files of this process, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return 1024 * int(sizes["RssAnon"]), 1024 * int(sizes["RssFile"])


if __name__ == "__main__":
    main(sys.argv[1:])
