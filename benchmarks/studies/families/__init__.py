"""Studies of the model families beside BERT."""
