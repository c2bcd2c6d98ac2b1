"""Check a bundle's golden texts: ids, offsets and answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from pocketbert.data.examples import Examples, LabelledData
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.goldens import tokenization_problems
from pocketbert_export.checks.outputs import Check, count_check
from pocketbert_export.tflite.runtimes import LITERT
from pocketbert_runtime.bundles.description import ANSWERS_FILE

# The check of the final answers.
ANSWERS = "answers"
_MOST_TOKENIZED = 512


def golden_examples(bundle: Bundle) -> Examples:
    """The golden texts with raw outputs, as examples."""
    # The encoder for separate pairs reads single texts.
    pairs = [] if bundle.pair_task else [golden.pair for golden in bundle.goldens]
    return Examples(
        texts=[golden.text for golden in bundle.goldens],
        pairs=[pair or "" for pair in pairs] if any(pairs) else None,
        labels=None,
        ids=[str(index) for index in range(len(bundle.goldens))],
        source="the bundle's golden examples",
    )


def check_answers(bundle: Bundle) -> Check:
    """Checks that the bundle gives its golden answers, as an app opens it."""
    try:
        problems = bundle.golden_problems()
    except UserError as error:
        problems = [str(error)]
    sound = f"{len(bundle.golden_lines)} golden texts have the offsets and answers in {ANSWERS_FILE}"
    return dataclasses.replace(count_check(ANSWERS, problems, "; ".join(problems) or sound), runtime=LITERT)


def check_tokenizer(bundle: Bundle, reference: Model | None, examples: LabelledData) -> Check:
    """Checks the ids for golden texts and real texts: the runtime's, and the model's tokenizer if it is given."""
    bundle_tokenizer, model_tokenizer = bundle.tokenizer, None if reference is None else reference.tokenizer
    golden = bundle.golden_lines, bundle.pair_task or bundle.task
    problems = tokenization_problems(*golden, bundle_tokenizer, bundle.lengths[-1])
    texts, longest = examples.first_texts(_MOST_TOKENIZED), bundle.lengths[-1]
    inputs = bundle_tokenizer(texts.texts, texts.pairs, max_length=longest)
    if not problems:
        # Apps use the runtime's tokenizer.
        runtime_tokenizer = bundle.runtime_tokenizer
        in_apps = tokenization_problems(*golden, runtime_tokenizer, bundle.lengths[-1])
        problems += [f"in apps {problem}" for problem in in_apps]
        if _differ(inputs, runtime_tokenizer(texts.texts, texts.pairs, max_length=longest)):
            problems.append(f"{texts.source} give other ids in apps, with the tokenizer of pocketbert_runtime")
    if model_tokenizer is not None:
        problems += [
            f"with the model's tokenizer {problem}"
            for problem in tokenization_problems(*golden, model_tokenizer, bundle.lengths[-1])
        ]
        if _differ(inputs, model_tokenizer(texts.texts, texts.pairs, max_length=longest)):
            problems.append(f"{texts.source} give other ids than with the model's tokenizer")
        mine, models = bundle.vocabulary, model_tokenizer.vocabulary
        if mine.kind != models.kind or mine.tokens() != models.tokens() or mine.segmentation() != models.segmentation():
            problems.append(f"{' and '.join(path.name for path in mine.files)} is not the model's")
        if mine.truncation != models.truncation:
            problems.append(f"longer texts are cut by truncation={mine.truncation}; the model has {models.truncation}")
        if mine.options != models.options:
            problems.append(f"the tokenizer has {mine.options}; the model's has {models.options}")
    sound = "golden texts give the golden ids"
    reason = "; ".join(problems) or (sound if model_tokenizer is None else f"{sound}, real texts give the model's ids")
    return count_check("tokenizer", problems, reason)


def _differ(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two tokenizers made different inputs."""
    return any(not np.array_equal(first[name], second[name]) for name in INPUT_NAMES)
