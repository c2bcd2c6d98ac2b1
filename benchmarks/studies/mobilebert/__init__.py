"""MobileBERT: accuracy of its distillation, its variants, and its cost beside tf-models-official."""
