"""GLUE submissions and their scores."""
