"""The project's own studies: comparisons with other libraries, ablations and accuracy tables. Not installed.

A study is a module in this package with `run(quick: bool) -> dict`, which returns the content of its result file. Its
name is its path, and its committed result file is `results/NAME.json`. `make bench` runs all studies.

A method's `accuracy` module is a longer experiment with many jobs (`studies.experiment`); `make bench` skips it.
`python -m studies.tables` writes the tables in README and docs/results from the result files.
"""
