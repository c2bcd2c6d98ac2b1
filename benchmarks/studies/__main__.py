"""Run studies: `python -m studies [NAME…]`, as `make bench` does. Needs `benchmarks` on PYTHONPATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from absl import flags

from pocketbert.errors import UserError
from pocketbert_bench import results
from studies import runner


def main(arguments: list[str]) -> int:
    """Runs the named studies, or all; returns 1 if a target was missed, 2 for bad input."""
    flag_values = flags.FlagValues()
    flags.DEFINE_bool("quick", False, "shortened runs for a first look", flag_values=flag_values)
    flags.DEFINE_string(
        "output", str(runner.RESULTS), "folder of the result files, as --output=FOLDER", flag_values=flag_values
    )
    try:
        names = flag_values(arguments)[1:] or list(runner.studies())
        if len(names) > 1:
            # Libraries read their number of threads on import, so each study has its own process.
            given = [argument for argument in arguments[1:] if argument.startswith("-")]
            commands = [[sys.executable, "-m", "studies", name, *given] for name in names]
            return max(subprocess.run(command, check=False).returncode for command in commands)
        # Transformers imports torch if it is installed, and torch and TensorFlow in one process abort.
        os.environ["USE_TORCH"] = "0"
        written = runner.run_studies(names, Path(flag_values.output), quick=flag_values.quick)
    except (UserError, flags.Error) as error:
        print(error, file=sys.stderr)
        return 2
    missed = False
    for name, path in written.items():
        content = results.read(path)
        print(f"{name}: {path}", *runner.summary(content), sep="\n  ")
        missed |= any(ratio.met is False for ratio in content.ratios)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
