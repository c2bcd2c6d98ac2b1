"""Baseline of `pretraining_data`: tf-models-official's functions, called as in its own `main`.

    python -m studies.against_tf_models.official_pretraining_data SENTENCES VOCABULARY OUTPUT MAX_LENGTH

Prints the number of examples.
"""

from __future__ import annotations

import random
import sys

SEED = 12345


def main(arguments: list[str]) -> None:
    """Reads sentences, one per line, and writes one TFRecord file."""
    from official.nlp.data import create_pretraining_data as official
    from official.nlp.tools import tokenization

    from pocketbert.data.pretraining_options import MaskingOptions

    sentences, vocabulary, output, length = arguments
    max_length = int(length)
    masking = MaskingOptions.of_length(max_length)
    tokenizer = tokenization.FullTokenizer(vocab_file=vocabulary, do_lower_case=True)
    instances = official.create_training_instances(
        [sentences],
        tokenizer,
        official.get_processor_text_fn(False, True),
        max_length,
        1,
        0.1,
        masking.rate,
        masking.max_predictions,
        random.Random(SEED),
    )
    official.write_instance_to_example_files(
        instances, tokenizer, max_length, masking.max_predictions, [output], False, True
    )
    print(len(instances))


if __name__ == "__main__":
    main(sys.argv[1:])
