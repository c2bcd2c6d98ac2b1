"""Benchmark: latency, memory, accuracy, result files and report."""
