"""Named comparisons that `make bench` runs."""
