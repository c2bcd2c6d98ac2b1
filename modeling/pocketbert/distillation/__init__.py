"""Distillation: a student learns from a teacher; a method is one file in `methods`."""
