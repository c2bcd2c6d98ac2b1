"""HSK: size of its store, speed of training from it, and its parts on GLUE tasks."""
