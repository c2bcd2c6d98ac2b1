"""Check a distillation method: `python -m pocketbert.conformance NAME [--OPTION=VALUE…]`.

It runs every rule on tiny networks, for each kind of data that the method accepts, and prints a line for each. The exit
code is 0 if the method keeps all rules, 1 if it breaks one, and 2 for bad input. Options are the method's, as in
`pocketbert distill`; pass one if a default does not fit networks of width 30 and 20.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.distillation.methods import get_method, names
from pocketbert.errors import UserError, did_you_mean
from pocketbert.options import describe_options, parse_value


def main(arguments: Sequence[str]) -> int:
    """Checks one method; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        print(f"methods: {', '.join(names())}")
        return 0
    name, *rest = arguments
    try:
        options = _options(name, rest)
        return int(not _keeps_all(name, options))
    except UserError as error:
        print(f"pocketbert.conformance: {error}", file=sys.stderr)
        return 2


def _options(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The method's options on the command line."""
    fields = {f"--{field.flag}": field for field in describe_options(get_method(name))}
    options = {}
    for argument in arguments:
        flag, _, text = argument.partition("=")
        if flag not in fields:
            raise UserError(f"no option {flag}{did_you_mean(flag, fields)}; {name} has {', '.join(fields) or 'none'}")
        try:
            options[fields[flag].name] = parse_value(fields[flag], text)
        except ValueError as error:
            raise UserError(f"{flag} {error}; received {text}") from None
    return options


def _keeps_all(name: str, options: dict[str, Any]) -> bool:
    """Prints a line for each rule and data kind; returns whether all are kept."""
    # They import TensorFlow.
    from pocketbert.conformance import cases
    from pocketbert.conformance.rules import RULES, BrokenRule, MethodUnderTest

    keeps, checked = True, 0
    for kind, problems in cases.kinds(name, options).items():
        for problem in problems:
            print(f"skipped  {name}, {kind}: {problem}")
        for rule, check in RULES.items() if not problems else ():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    reason = check(MethodUnderTest(name=name, kind=kind, options=options, folder=Path(folder)))
                    mark = "skipped" if reason else "ok"
                    checked += not reason
                # A method may raise anything.
                except Exception as error:
                    if not isinstance(error, BrokenRule):
                        traceback.print_exc()
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    keeps, mark = False, "BROKEN"
                print(f"{mark:<8} {name}, {kind}: {rule}" + (f": {reason}" if reason else ""), flush=True)
    if keeps and not checked:
        raise UserError(f"no rule could be checked for {name}: it accepts none of {', '.join(cases.HEADS)} as above")
    return keeps


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
