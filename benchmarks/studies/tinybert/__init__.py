"""TinyBERT: accuracy of distillation, and its preparations."""
