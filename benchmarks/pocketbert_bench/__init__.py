"""What it costs: host benchmark, accuracy, results and report."""
