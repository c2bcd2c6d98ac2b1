"""Option grids: runs every point and selects the best."""
