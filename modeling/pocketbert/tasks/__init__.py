"""Tasks: heads, data, losses, metrics and predictions, one file per kind."""
