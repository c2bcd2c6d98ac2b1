"""Run the whole workflow on a real model and real text.

The command downloads a pretrained 6-layer BERT (all-MiniLM-L6-v2) and labelled film reviews (Rotten Tomatoes). Then
it does what `pocketbert compress` does for your own data: it fine-tunes the network, cuts smaller networks out of it,
trains them, and exports, verifies and measures the best one that takes at most 40 % of the time. The report is one HTML
page. This takes about five minutes. Rerun the same command to resume.

--full does each step with fixed settings: it fine-tunes a teacher, distils it into a student with 3 layers (TinyBERT),
exports both as float32 and int8, and times them beside the teacher's export by TensorFlow's converter. The page also
has the sentences on which teacher and student differ.

--task=embedding turns all-MiniLM-L6-v2 into a verified int8 bundle of sentence embeddings, distils a student with
half its layers, and shows a search among film sentences. --glue scores both on STS-B.

Example:
  pocketbert quickstart --output runs/quickstart
  pocketbert quickstart --task=embedding --output runs/search
  pocketbert quickstart --full --output runs/full  # about ten minutes
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal

from pocketbert.commands.command_line import Options
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.options import DirectoryPath


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuickstartOptions:
    """Options of the quickstart.

    Attributes:
      task: classification of film reviews, or sentence embeddings.
      glue: embedding: folder with GLUE's STS-B, for scores.
      output: output folder.
      full: each step with fixed settings, and longer measurements: about ten minutes on two cores.
      seed: seed of new weights, shuffling and dropout.
    """

    GROUP: ClassVar = "Run"

    task: Literal["classification", "embedding"] = "classification"
    glue: DirectoryPath | None = None
    output: DirectoryPath = "runs/quickstart"
    full: bool = False
    seed: int = 0


OPTIONS = (QuickstartOptions,)


def run(options: Options) -> int:
    """Runs the quickstart and prints the table."""
    chosen = options[QuickstartOptions]
    from pocketbert.progress import log_info
    from pocketbert_bench.quickstart import quickstart
    from pocketbert_bench.quickstart_embedding import quickstart_embedding
    from pocketbert_export.verification.verify import GateFailed

    if chosen.glue and chosen.task != "embedding":
        raise UserError(f"--glue is for --task=embedding; received it with {chosen.task}; leave it out")
    try:
        output, full, seed = Path(chosen.output), chosen.full, chosen.seed
        if chosen.task == "embedding":
            print(quickstart_embedding(output, glue=chosen.glue, full=full, seed=seed))
        else:
            print(quickstart(output, full=full, seed=seed))
    except (GateFailed, TrainingFailed) as error:
        log_info(f"pocketbert quickstart: {error}")
        return 1
    return 0
