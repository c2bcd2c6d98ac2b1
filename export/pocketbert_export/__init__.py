"""From a model directory to a bundle that proves itself."""
