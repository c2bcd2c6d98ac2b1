"""TinyBERT: accuracy of its distillation, and what it needs."""
