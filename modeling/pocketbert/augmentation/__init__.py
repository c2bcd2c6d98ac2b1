"""TinyBERT's data augmentation (Jiao et al. 2020, algorithm 1)."""
