"""Answers: from a network's outputs to the results of `predict`, a file for each task kind."""
