"""Search for feed-forward networks (EfficientBERT)."""
