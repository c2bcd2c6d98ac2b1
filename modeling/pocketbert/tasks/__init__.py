"""What a model is trained and judged on: heads, losses, metrics."""
