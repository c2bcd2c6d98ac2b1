"""The engine of grids, searches and compressions: trials, their workers, journal and clock; knows no model."""
