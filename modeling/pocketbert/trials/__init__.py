"""Engine for grids, searches and compressions: trials with workers, journal and clock; knows no model."""
