"""Answers: how the outputs of a network become what `predict` returns, a file for each kind of task."""
