"""Finds tests that cannot fail: changes one place in a module at a time, and runs the tests that should notice.

Usage: python tools/mutation_test.py --count=20 --seed=1 --result=mutants.json [modeling/pocketbert/model.py ...]

Run it in a copy of your checkout, because it edits the modules in place. A survivor is a gap in the tests, or a change
without effect. mutmut and cosmic-ray would import TensorFlow again for every mutant.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import importlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Module → the tests that should notice a change.
TESTS = {
    "modeling/pocketbert/training/step.py": ["pocketbert/distillation/test_distiller.py"],
    "modeling/pocketbert/distillation/losses.py": ["pocketbert/distillation/test_losses.py"],
    "modeling/pocketbert/layers/loss_normalization.py": ["pocketbert/layers/test_loss_normalization.py"],
    "modeling/pocketbert/distillation/layer_maps.py": ["pocketbert/distillation/test_layer_maps.py"],
    "modeling/pocketbert/training/optimizers.py": ["pocketbert/training/test_optimizers.py"],
    "modeling/pocketbert/training/gradients.py": ["pocketbert/training/test_optimizers.py"],
    "modeling/pocketbert/training/schedules.py": ["pocketbert/training/test_schedules.py"],
    "modeling/pocketbert/training/class_weights.py": ["pocketbert/training/test_class_weights.py"],
    "modeling/pocketbert/training/loss_scaling.py": ["pocketbert/training/test_loss_scaling.py"],
    "modeling/pocketbert/tasks/masked_lm.py": ["pocketbert/test_keras.py"],
    "modeling/pocketbert/tasks/outputs.py": ["pocketbert/test_keras.py", "conformance/test_tasks.py"],
    **{
        f"modeling/pocketbert/tasks/{name}.py": ["conformance/test_tasks.py"]
        for name in ("classification", "multi_label", "regression", "span", "next_sentence", "texts")
    },
    **{
        f"runtime/pocketbert_runtime/answers/{name}.py": ["pocketbert_runtime/answers/test_text_answers.py"]
        for name in ("classification", "multi_label", "regression", "span")
    },
    **{
        f"runtime/pocketbert_runtime/answers/{name}.py": [f"pocketbert_runtime/answers/test_{name}.py"]
        for name in ("best_spans", "tags")
    },
    "runtime/pocketbert_runtime/rows.py": ["pocketbert_runtime/test_rows.py"],
    "runtime/pocketbert_runtime/windows.py": ["pocketbert_runtime/test_windows.py"],
    "runtime/pocketbert_runtime/tokenizers/wordpiece.py": ["pocketbert_runtime/tokenizers/test_plain_wordpiece.py"],
    "modeling/pocketbert/tasks/question_answering.py": ["pocketbert/training/test_question_answering.py"],
    "modeling/pocketbert/search/constraints.py": ["pocketbert/search/test_space.py"],
    **{
        f"modeling/pocketbert/search/{name}.py": [f"pocketbert/search/test_{name}.py"]
        for name in ("expressions", "journal", "space", "strategies")
    },
    "modeling/pocketbert/feedforward.py": ["pocketbert/test_feedforward.py"],
    "modeling/pocketbert/tokenizers/trimming.py": ["pocketbert/pruning/test_roberta_vocabularies.py"],
    "modeling/pocketbert/data/teacher_cache/encodings.py": [
        "pocketbert/data/teacher_cache/test_teacher_cache_encodings.py"
    ],
    "export/pocketbert_export/checks/outputs.py": ["pocketbert_export/checks/test_checks.py"],
    "export/pocketbert_export/conversion/graph_optimization.py": [
        "pocketbert_export/conversion/test_graph_optimization.py"
    ],
    "export/pocketbert_export/exporter.py": [
        "pocketbert_export/bundles/test_bundle.py",
        "pocketbert_export/verification/test_faults.py",
    ],
    "export/pocketbert_export/verification/verify.py": ["pocketbert_export/verification/test_verify.py"],
    "export/pocketbert_export/verification/record_checks.py": ["pocketbert_export/verification/test_record_checks.py"],
    "export/pocketbert_export/clients/mediapipe_client.py": ["pocketbert_export/clients/test_mediapipe.py"],
}
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields replacements for a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.If | ast.IfExp):
        other = copy.copy(node)
        other.test = ast.UnaryOp(ast.Not(), node.test)
        yield other
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()


def mutants(source: str) -> list[tuple[int, str]]:
    """Line and text of every changed version of a module; annotations and strings do not change."""
    tree = ast.parse(source)
    mutants: list[tuple[int, str]] = []

    def walk(node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST):
                    continue
                for other in changes(child):
                    _put(node, field, index, other)
                    mutants.append((getattr(child, "lineno", 0), ast.unparse(ast.fix_missing_locations(tree))))
                    _put(node, field, index, child)
                if not isinstance(child, ast.JoinedStr):
                    walk(child)

    walk(tree)
    return mutants


def _put(parent: ast.AST, field: str, index: int, child: ast.AST) -> None:
    value = getattr(parent, field)
    if isinstance(value, list):
        value[index] = child
    else:
        setattr(parent, field, child)


def run_tests(root: Path, files: list[str], limit: float) -> bool:
    """Whether the tests pass, in a process forked with TensorFlow imported but unused."""
    process = multiprocessing.get_context("fork").Process(target=_tests, args=(root, files))
    process.start()
    process.join(limit)
    process.kill()
    process.join()
    return process.exitcode == 0


def _tests(root: Path, files: list[str]) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.path[:0] = [str(root / name) for name in ("runtime", "modeling", "export", "benchmarks")]
    # Skip exit handlers: only the exit code counts.
    os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in files)]))


def main() -> None:
    """Samples mutants, runs the tests on each and writes the survivors."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--count", type=int, default=20, help="mutants to try")
    flags.add_argument("--seed", type=int, default=0, help="seed of the sample")
    flags.add_argument(
        "--seconds", type=float, default=300.0, help="time limit per test run; a timeout counts as noticed"
    )
    flags.add_argument("--until", type=float, default=float("inf"), help="stop at this time, in seconds since 1970")
    flags.add_argument("--result", type=Path, default=Path("mutants.json"), help="the JSON file to write")
    flags.add_argument("modules", nargs="*", default=list(TESTS), help="modules in the table (default: all)")
    options = flags.parse_args()
    root = Path.cwd()
    # Import once: every test process is forked from here.
    os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    importlib.import_module("tensorflow")
    importlib.import_module("tf_keras")
    sample: list[tuple[str, int, str]] = []
    generator = random.Random(options.seed)
    for module in options.modules:
        every = mutants((root / module).read_text("utf-8"))
        sample += [(module, *mutant) for mutant in generator.sample(every, min(len(every), options.count))]
    # Spread the sample over the modules.
    generator.shuffle(sample)
    results: list[dict[str, Any]] = []
    checked: set[str] = set()
    for module, line, text in sample[: options.count]:
        if time.time() > options.until:
            break
        # Tests that fail without a change would seem to notice everything.
        if module not in checked and not run_tests(root, TESTS[module], options.seconds):
            sys.exit(f"the tests of {module} must pass before it is changed; run {', '.join(TESTS[module])}")
        checked.add(module)
        path = root / module
        original = path.read_text("utf-8")
        plain = ast.unparse(ast.parse(original))
        diff = [line for line in difflib.unified_diff(plain.splitlines(), text.splitlines(), n=0, lineterm="")][3:]
        try:
            path.write_text(text, "utf-8")
            survived = run_tests(root, TESTS[module], options.seconds)
        finally:
            path.write_text(original, "utf-8")
        results.append({"module": module, "line": line, "diff": diff, "survived": survived})
        options.result.write_text(json.dumps(results, indent=2), "utf-8")
        print("SURVIVED" if survived else "noticed ", f"{module}:{line}", *diff, sep="\n    ", flush=True)
    print(f"{sum(result['survived'] for result in results)} of {len(results)} survived")


if __name__ == "__main__":
    main()
