"""Comparisons with tf-models-official."""
