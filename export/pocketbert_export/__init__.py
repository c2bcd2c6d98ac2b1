"""From a model directory to a bundle with proof."""
