"""The presets that stand for the rows of a paper's table have the sizes and the counts of that table."""

from __future__ import annotations

import math

import pytest

from pocketbert.checkpoints.huggingface import write_config
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.presets import PRESETS, preset


# Table 2: h_inter, h_intra, heads, parameters in millions.
@pytest.mark.parametrize(
    ("name", "inter", "intra", "heads", "millions"),
    [
        ("ib_bert_h1024_b1024_a16", 1024, 1024, 16, 356),
        ("ib_bert_h768_b1024_a16", 768, 1024, 16, 325),
        ("ib_bert_h512_b1024_a16", 512, 1024, 16, 293),
        ("ib_bert_h384_b1024_a16", 384, 1024, 16, 276),
        ("ib_bert_h256_b1024_a16", 256, 1024, 16, 262),
        ("ib_bert_large", 512, 1024, 4, 293),
        ("ib_bert_h512_b512_a4", 512, 512, 4, 92),
        ("ib_bert_h512_b256_a4", 512, 256, 4, 33),
        ("ib_bert_h512_b128_a4", 512, 128, 4, 15),
    ],
)
def test_teachers_of_mobileberts_table_2(name: str, inter: int, intra: int, heads: int, millions: int) -> None:
    network = preset(name)
    config = network.config
    assert config.bottleneck is not None and config.num_layers == 24
    assert (config.hidden_size, config.block_size, config.num_attention_heads) == (inter, intra, heads)
    assert (config.attention_size, config.intermediate_size) == (intra, 4 * intra)
    assert (config.norm, config.activation, config.pooler) == ("layer_norm", "gelu_tanh", "tanh")
    # What the sizes give is 0.5 to 2.7 M more than the paper's whole millions, in every row; it does not say why. The
    # pooler is 0.07 to 1 M of it.
    assert 0.5e6 < network.parameters - 1e6 * millions < 2.7e6


# Table 3: h_intra, heads and millions of attention, feed-forward networks and their millions.
@pytest.mark.parametrize(
    ("name", "intra", "heads", "attention", "stacked", "feed_forward"),
    [
        ("mobilebert_b192_a6_f1", 192, 6, 8, 1, 7),
        ("mobilebert_b160_a5_f2", 160, 5, 6.5, 2, 10),
        ("mobilebert_paper", 128, 4, 5, 4, 12.5),
        ("mobilebert_b96_a3_f8", 96, 3, 4, 8, 14),
    ],
)
def test_students_of_mobileberts_table_3(
    name: str, intra: int, heads: int, attention: float, stacked: int, feed_forward: float
) -> None:
    network = preset(name)
    config = network.config
    assert (config.block_size, config.num_attention_heads, config.num_feedforward_networks) == (intra, heads, stacked)
    assert (config.hidden_size, config.num_layers, config.attention_size) == (512, 24, intra)
    assert config.bottleneck is not None and config.bottleneck.query_key == "raw"
    counts = {"attention": 0, "feed_forwards": 0}
    for path, spec in tensor_specs(config).items():
        part = path.split(".")[3] if path.startswith("encoder.layers.") else ""
        if part in counts and path.endswith("kernel"):
            counts[part] += spec.shape[0] * spec.shape[1]
    # The paper's figures are rounded to half a million.
    assert counts["attention"] / 1e6 == pytest.approx(attention, abs=0.25)
    assert counts["feed_forwards"] / 1e6 == pytest.approx(feed_forward, abs=0.25)
    # "approximately 25M parameters" each, section 4.1.
    assert network.parameters / 1e6 == pytest.approx(25, abs=1)


# Tables 1, 3, 5 and 9: layers, width, rows and width of the word table, parameters in millions; 117.6 M as released.
@pytest.mark.parametrize(
    ("name", "layers", "width", "rows", "embedding", "millions"),
    [
        ("minilmv2_6l_384d", 6, 384, 30522, 384, 22),
        ("minilmv2_6l_768d", 6, 768, 30522, 768, 66),
        ("minilmv2_12l_384d_128e", 12, 384, 30522, 128, 25),
        ("minilmv2_roberta_6l_384d", 6, 384, 50265, 384, 30),
        ("minilmv2_roberta_6l_768d", 6, 768, 50265, 768, 81),
        ("minilmv2_roberta_12l_768d", 12, 768, 50265, 768, 125),
        ("minilmv2_xlm_r_6l_384d", 6, 384, 250002, 384, 107),
        ("minilmv2_xlm_r_12l_384d", 12, 384, 250002, 384, 117.6),
    ],
)
def test_students_of_minilmv2(name: str, layers: int, width: int, rows: int, embedding: int, millions: float) -> None:
    network = preset(name)
    config = network.config
    assert (config.num_layers, config.hidden_size, config.num_attention_heads) == (layers, width, 12)
    assert (config.attention_size, config.intermediate_size) == (width, 4 * width)
    assert (config.vocab_size, config.embedding_size) == (rows, embedding)
    # The paper rounds some figures and truncates others; some include the pooler, of 0.15 or 0.59 M.
    pooler = width * width + width
    assert -0.5e6 < network.parameters - 1e6 * millions < 1e6 + pooler * (millions == 81)


# Section 4.3 and table 8.
@pytest.mark.parametrize(
    ("name", "layers", "width", "heads", "millions"),
    [("camembert_base", 12, 768, 12, 110), ("camembert_large", 24, 1024, 16, 335)],
)
def test_camemberts(name: str, layers: int, width: int, heads: int, millions: int) -> None:
    network = preset(name)
    config = network.config
    assert (config.num_layers, config.hidden_size, config.num_attention_heads) == (layers, width, heads)
    # The paper's whole millions may be without a pooler.
    assert -0.5e6 < network.parameters - 1e6 * millions < 1e6 + width * width + width


@pytest.mark.nightly
# Graphs create variables without values, so the sizes cost nothing; all layers have the same size.
@pytest.mark.parametrize(
    "name", [name for name in PRESETS if any(part in name for part in ("roberta", "xlm", "camembert"))]
)
def test_counts_equal_those_of_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    tf = pytest.importorskip("tensorflow")
    network = preset(name)
    content = write_config(network.config, ()) | {"num_hidden_layers": 1}
    config = transformers.AutoConfig.for_model(content.pop("model_type"), **content)
    with tf.Graph().as_default():
        model = transformers.TFAutoModel.from_config(config)
        model(tf.zeros([1, 2], tf.int32))
        sizes = {weight.name: math.prod(weight.shape) for weight in model.weights}
    layer = sum(size for weight, size in sizes.items() if "layer_._0" in weight)
    assert layer > 0
    assert sum(sizes.values()) + (network.config.num_layers - 1) * layer == network.parameters
