"""Argument names in messages: see `pocketbert_runtime.notation`; its names are public here, too."""

from __future__ import annotations

from pocketbert_runtime.notation import Notation as Notation
from pocketbert_runtime.notation import argument as argument
from pocketbert_runtime.notation import command as command
from pocketbert_runtime.notation import current_notation as current_notation
from pocketbert_runtime.notation import has_value as has_value
from pocketbert_runtime.notation import set_notation as set_notation
from pocketbert_runtime.notation import use_notation as use_notation
