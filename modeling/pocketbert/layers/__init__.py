"""The parts of an encoder."""
