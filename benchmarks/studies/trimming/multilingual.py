"""The size of a multilingual student with all tokens, and with those of two languages.

    python -m studies trimming/multilingual
    python -m studies.tables

MiniLMv2's 6x384 student of XLM-R, with random weights, is exported as `dynamic_wi8`: with all 250,002 tokens, and
trimmed to the tokens that occur in XNLI's English and German texts. XNLI's texts in each other language show what
the trimmed vocabulary costs elsewhere.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pocketbert.data.xnli import XNLI, read_xnli
from pocketbert.presets import preset
from pocketbert.pruning.vocabulary import trim_vocabulary
from pocketbert_bench import accuracy, results
from studies.shared_data import shared_data
from studies.trimming.xlm_r_tokenizer import toy_model, xlmr_model

NETWORK, RECIPE = "minilmv2_xlm_r_6l_384d", "dynamic_wi8"
LANGUAGES, MEASURED = ("en", "de"), ("en", "de", "fr", "ru")
LENGTH = 128
# Bytes of the trimmed bundle's model.
TARGET = 35e6
WHOLE, TRIMMED = "all tokens", "tokens in English and German texts"


def run(quick: bool) -> dict[str, Any]:
    """Exports both models.

    Args:
      quick: the same as a full run; it takes a few minutes.

    Returns:
      Content of a result file: sizes of both files as a ratio, tokens as before in XNLI's languages.
    """
    import pocketbert as pb
    from pocketbert_export.bundle import MODEL_FILE
    from pocketbert_export.exporter import export

    created = results.now()
    accuracies, sizes = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shared = shared_data("vocab").parent.parent
        (folder / "sentencepiece.bpe.model").write_bytes(xlmr_model(shared, toy_model()))
        tokenizer = pb.UnigramTokenizer(folder / "sentencepiece.bpe.model")
        pb.from_preset(preset(NETWORK).config, XNLI, tokenizer).save_pretrained(folder / "whole")
        texts = {language: _write_texts(language, folder) for language in MEASURED}
        for language in MEASURED:
            found = trim_vocabulary(
                folder / "whole",
                [texts[each][0] for each in LANGUAGES],
                folder / "trimmed",
                dev_text=[texts[language][1]],
                overwrite=True,
            )
            for metric, value in (("same_sentences", found.same_sentences), ("same_tokens", found.same_tokens)):
                accuracies.append(
                    accuracy.record(
                        label=TRIMMED,
                        model=NETWORK,
                        recipe="float32",
                        task="vocabulary trimming",
                        split=f"XNLI, {language}, every tenth text",
                        metric=metric,
                        value=value,
                        examples=found.sentences,
                        model_file=None,
                    )
                )
        for label, model in ((WHOLE, folder / "whole"), (TRIMMED, folder / "trimmed")):
            export(model, folder / model.name / "bundle", recipe=RECIPE, lengths=(LENGTH,))
            sizes[label] = (folder / model.name / "bundle" / MODEL_FILE).stat().st_size
    notes = [
        f"{found.tokens[1]:,} of {found.tokens[0]:,} tokens and {found.parameters[1]:,} of {found.parameters[0]:,} "
        f"weights are kept; {RECIPE}, {LENGTH} tokens: {sizes[TRIMMED] / 1e6:.1f} MB instead of "
        f"{sizes[WHOLE] / 1e6:.1f} MB"
    ]
    size = results.ratio(
        name="size, two languages against all",
        description=f"{NETWORK}, {RECIPE}: size of model.tflite; the target is {TARGET / 1e6:.0f} MB",
        ours=TRIMMED,
        peer=WHOLE,
        unit="bytes",
        ours_samples=[sizes[TRIMMED]],
        peer_samples=[sizes[WHOLE]],
        better="lower",
        target=TARGET / sizes[WHOLE],
    )
    return results.to_json(
        results.result_file(
            "trimming a multilingual vocabulary",
            quick=quick,
            ratios=[size],
            accuracies=accuracies,
            notes=notes,
            created=created,
        )
    )


def _write_texts(language: str, folder: Path) -> tuple[Path, Path]:
    """Writes nine tenths of a language's premises and hypotheses to count, and the others to measure."""
    examples = read_xnli(shared_data("xnli"), "dev", [language])
    assert examples.pairs is not None
    lines = [text.strip() for pair in zip(examples.texts, examples.pairs, strict=True) for text in pair]
    counted, measured = folder / f"{language}.txt", folder / f"{language}-dev.txt"
    counted.write_text("\n\n".join(text for index, text in enumerate(lines) if index % 10 != 9), encoding="utf-8")
    measured.write_text("\n\n".join(lines[9::10]), encoding="utf-8")
    return counted, measured
