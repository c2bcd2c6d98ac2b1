"""Bundles with unigram tokenizers in other layouts than XLM-R's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import golden_checks
import networks
import numpy as np
import pytest
from tiny_tokenizers import layout_file

import pocketbert as pb
import pocketbert_runtime
from pocketbert.errors import UserError
from pocketbert_export.bundles.bundle import Bundle

TEXTS = ["a charming journey", "cafe\u0301 ½  the cats [MASK] </s>", "in 1990, 9,"]


@pytest.mark.one_of_each("albert")
@pytest.mark.parametrize("layout", ["camembert", "albert", "deberta"])
def test_bundle_has_the_layout(layout: str, tmp_path: Path) -> None:
    tokenizer = pb.UnigramTokenizer(layout_file(tmp_path, layout), layout=layout)
    config = networks.bert_config(vocab_size=tokenizer.vocab_size, num_layers=1)
    model = networks.network(config.replace(pad_token_id=tokenizer.pad_token_id), tokenizer=tokenizer)
    folder = tmp_path / "bundle"
    pb.export(model, folder, recipe="float32", lengths=(9, 21))
    description = json.loads((folder / "bundle.json").read_text())
    assert description["tokenizer"] == {"kind": "unigram", "layout": layout, "vocab_size": tokenizer.vocab_size}
    expected = model.predict(TEXTS)
    for bundle in (Bundle.open(folder), pocketbert_runtime.Bundle.open(folder)):
        assert bundle.tokenizer.vocabulary.layout == layout
        for one, other in zip(bundle.predict(TEXTS), expected, strict=True):
            # Two float32 implementations of a network with one layer.
            np.testing.assert_allclose([*one["probabilities"].values()], [*other["probabilities"].values()], atol=2e-5)
    golden_checks.check_golden_answers(folder, model)
    for change, message in (
        ({"layout": "t5"}, "'t5' is not one of"),
        ({"layout": "xlm_r"}, "must be listed among the files|first subwords of XLM-R|tokens, the vocab_size"),
    ):
        copy = Path(shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True))
        changed = description | {"tokenizer": description["tokenizer"] | change}
        (copy / "bundle.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match=message):
            Bundle.open(copy)
