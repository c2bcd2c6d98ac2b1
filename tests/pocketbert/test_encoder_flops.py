from __future__ import annotations

import math

import pytest
import tiny

from pocketbert.configs import EncoderConfig
from pocketbert.flops import encoder_flops
from pocketbert.presets import PRESETS

# The papers print one decimal, so half a unit of it; and they may count elementwise operations too, which TensorFlow's
# profiler puts at 0.3 % (BERT-base) and 0.6 % (MobileBERT) of the products: twice that.
PRINTED = 0.05e9


@pytest.mark.parametrize(
    ("preset", "paper", "relative"),
    [
        ("bert_base_uncased", 22.5e9, 0.006),
        ("mobilebert_paper", 5.7e9, 0.012),
        ("mobilebert_paper_without_opt", 5.7e9, 0.012),
        ("mobilebert_tiny", 3.1e9, 0.0),
        ("tinybert_4l_312d", 1.2e9, 0.0),
    ],
)
def test_papers_figures_at_128_tokens(preset: str, paper: float, relative: float) -> None:
    assert abs(encoder_flops(PRESETS[preset].config, 128) - paper) <= PRINTED + relative * paper


def test_bert_base_by_hand() -> None:
    linear = 128 * (4 * 768 * 768 + 2 * 768 * 3072)
    attention = 12 * (128 * 64 * 128) * 2
    assert encoder_flops(PRESETS["bert_base_uncased"].config, 128) == 2 * (12 * (linear + attention) + 768 * 768)


def test_distances_are_two_more_products() -> None:
    more = encoder_flops(tiny.DEBERTA, 11) - encoder_flops(tiny.BERT.replace(pooler="none"), 11)
    assert more == 2 * 3 * 2 * 11 * 21 * 30


@pytest.mark.one_of_each("mobilebert", "modernbert")
@pytest.mark.parametrize(
    "family", ["bert", "factorized_output", "mobilebert", "mobilebert_raw", "mobilebert_tiny", "modernbert"]
)
def test_every_matrix_product_of_the_graph_is_counted(family: str) -> None:
    config = tiny.FAMILIES[family]
    assert encoder_flops(config, 11) == _profiled_products(config, 11)


def test_attention_grows_with_the_square_of_the_length() -> None:
    config = tiny.BERT.replace(pooler="none")
    # Linear parts cancel: f(3n) - 3 f(n) leaves (9 - 3) n² of the attention's 2 products over all heads' width.
    assert encoder_flops(config, 21) - 3 * encoder_flops(config, 7) == 2 * 3 * 6 * 7 * 7 * 2 * 30
    assert math.isclose(encoder_flops(config, 7) / 7, encoder_flops(config, 8) / 8, rel_tol=0.05)


def _profiled_products(config: EncoderConfig, length: int) -> int:
    """TensorFlow's own profiler on the encoder's graph: matrix products only."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2_as_graph

    from pocketbert.encoder import Encoder

    encoder = Encoder(config)
    names = ("input_word_ids", "input_mask", "input_type_ids")

    @tf.function
    def forward(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return encoder(dict(zip(names, inputs, strict=True)))

    function = forward.get_concrete_function(*[tf.TensorSpec([1, length], tf.int32)] * 3)
    _, graph_def = convert_variables_to_constants_v2_as_graph(function)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        options["output"] = "none"
        options["account_type_regexes"] = [".*MatMul.*"]
        return tf.compat.v1.profiler.profile(graph, cmd="scope", options=options).total_float_ops
