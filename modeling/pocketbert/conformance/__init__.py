"""Rules for distillation methods, also those of other packages: `python -m pocketbert.conformance NAME`."""
