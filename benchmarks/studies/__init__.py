"""The project's own studies: comparisons with other libraries, sweeps and accuracy tables. Not installed.

A study is a module in this package with `run(quick: bool) -> dict`, which returns the content of its result file. Its
name is its path, and its committed result file is `results/NAME.json`. `make bench` runs all studies.

A module with a `SWEEP` (`studies.sweep`) runs subjects on tasks with seeds for hours; it is a command, and `make bench`
skips it. `python -m studies.tables` writes the tables and pictures in README and docs from the result files. `closed`
lists the result files whose code is in history only.
"""
