"""The encoder's layers, and the mean in all losses."""
