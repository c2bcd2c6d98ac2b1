"""The project's own studies: comparisons with other libraries, ablations, accuracy tables. Not installed.

A study is a module below this package with `run(quick: bool) -> dict`, the content of its result file. Its name is its
path, and its committed result file is `results/NAME.json`. `make bench` runs all of them.

A module `accuracy` of a method is a longer experiment of many jobs (`studies.experiment`); `make bench` leaves it out.
`python -m studies.tables` writes the tables of README and docs/results from the result files.
"""
