"""Rules for distillation methods, also in other packages: `python -m pocketbert.conformance NAME`."""
