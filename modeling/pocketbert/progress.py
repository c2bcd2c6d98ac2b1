"""Progress on stderr: see `pocketbert_runtime.progress`; its names are public here, too."""

from __future__ import annotations

from pocketbert_runtime.progress import bar as bar
from pocketbert_runtime.progress import log_info as log_info
from pocketbert_runtime.progress import track as track
