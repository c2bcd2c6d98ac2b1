"""Published phone latencies to show next to a phone's results, for other networks, files and runtimes."""

from __future__ import annotations

from dataclasses import dataclass

PHONE = "Pixel 4"
LENGTH = 128
THREADS = 4
SOURCE = "Sun et al. 2020 (MobileBERT)"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A published latency.

    Attributes:
      network: name in the paper.
      milliseconds: per call, float32, TensorFlow Lite in 2020.
    """

    network: str
    milliseconds: float


# Sun et al. 2020, section 4 and the table of GLUE results, https://arxiv.org/abs/2004.02984.
FIGURES = (
    Figure(network="BERT-base", milliseconds=342.0),
    Figure(network="MobileBERT without operational optimizations", milliseconds=192.0),
    Figure(network="MobileBERT", milliseconds=62.0),
    Figure(network="MobileBERT-TINY", milliseconds=40.0),
)
