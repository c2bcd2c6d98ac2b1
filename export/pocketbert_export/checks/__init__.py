"""What the gate measures: bounds, outputs, label order and texts."""
