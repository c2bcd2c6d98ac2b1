"""Text to ids, in the graph."""
