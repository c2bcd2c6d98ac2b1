import json
import struct

import pytest

from pocketbert.checkpoints.name_maps import modern_name, parameter_count, tensor_specs
from pocketbert.configs import TaskConfig
from pocketbert.presets import PRESETS

# The papers' and the released models' own figures, pooler included where the family has one.
PUBLISHED = {
    "bert_base_uncased": 109_482_240,
    "roberta_base": 124_645_632,
    "roberta_large": 355_359_744,
    "xlm_r_base": 278_043_648,
    "xlm_r_large": 559_890_432,
    "distilbert_base_uncased": 66_362_880,
    # transformers' ElectraModel in these sizes.
    "electra_small": 13_483_008,
    "electra_base": 108_891_648,
    "electra_large": 334_092_288,
    # transformers' AlbertModel in these sizes; table 1 of the paper rounds them to 12M, 18M, 60M and 235M.
    "albert_base": 11_683_584,
    "albert_large": 17_683_968,
    "albert_xlarge": 58_724_864,
    "albert_xxlarge": 222_595_584,
    "ib_bert_large": 294_467_840,
    "mobilebert": 24_581_888,
    "mobilebert_paper": 25_359_104,
    "mobilebert_tiny": 15_485_696,
    "tinybert_4l_312d": 14_350_248,
    "tinybert_6l_768d": 66_955_008,
    "rosita_6l_768d": 14_463_744,
    "minilmv2_6l_384d": 22_713_216,
    "minilmv2_12l_384d_128e": 25_595_904,
    "minilmv2_roberta_6l_384d": 30_294_912,
    "minilmv2_roberta_6l_768d": 82_118_400,
    "minilmv2_roberta_12l_768d": 124_645_632,
    "minilmv2_xlm_r_6l_384d": 106_993_920,
    "minilmv2_xlm_r_12l_384d": 117_640_704,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_is_the_published_one(name):
    assert parameter_count(PRESETS[name].config) == PUBLISHED[name]


def test_mobilebert_masked_lm_head_is_factorized():
    config = PRESETS["mobilebert"].config
    head = parameter_count(config, [TaskConfig(kind="masked_lm")]) - parameter_count(config)
    # Transform 512·512 + 512, LayerNorm 2·512, extra table, bias: 12.01 M, as the authors' code has it.
    assert head == 512 * 512 + 3 * 512 + 30522 * 384 + 30522
    spec = tensor_specs(config, [TaskConfig(kind="masked_lm")])["heads.masked_lm.extra_table"]
    assert spec.name == "cls.predictions.dense.weight"
    assert spec.shape == (384, 30522)
    assert spec.canonical_shape == (30522, 384)


def test_the_last_stacked_feed_forward_is_the_unindexed_one():
    specs = tensor_specs(PRESETS["mobilebert"].config)
    last, first = "encoder.layers.5.feed_forwards.3", "encoder.layers.5.feed_forwards.0"
    assert specs[f"{last}.intermediate.kernel"].name == "mobilebert.encoder.layer.5.intermediate.dense.weight"
    assert specs[f"{first}.output.kernel"].name == "mobilebert.encoder.layer.5.ffn.0.output.dense.weight"


@pytest.mark.parametrize(
    "case",
    "bert_classifier bert_gelu bert_span mobilebert mobilebert_layernorm_gelu mobilebert_tiny roberta".split(),
)
def test_names_and_shapes_are_those_that_transformers_writes(case, reference):
    from pocketbert.checkpoints.huggingface import read_config

    content = (reference / case / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    stored = {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    config, tasks = read_config(json.loads((reference / case / "config.json").read_text()), stored.keys())
    assert {spec.name: spec.shape for spec in tensor_specs(config, tasks).values()} == stored


def test_heads_get_names_of_their_own():
    tasks = [
        TaskConfig(kind="classification", labels=("a", "b", "c")),
        TaskConfig(kind="regression"),
        TaskConfig(kind="span"),
        TaskConfig(kind="masked_lm"),
        TaskConfig(kind="next_sentence"),
    ]
    for name in ("bert_base_uncased", "roberta_base", "xlm_r_base", "mobilebert"):
        for pooler in ("tanh", "none"):
            specs = tensor_specs(PRESETS[name].config.replace(pooler=pooler), tasks)
            names = [spec.name for spec in specs.values()]
            assert len(names) == len(set(names)), (name, pooler)


def test_roberta_classifier_layout():
    config = PRESETS["roberta_base"].config.replace(pooler="none")
    specs = tensor_specs(config, [TaskConfig(kind="classification", labels=("a", "b", "c"))])
    assert specs["heads.classification.dense.kernel"].name == "classifier.dense.weight"
    assert specs["heads.classification.output.kernel"].name == "classifier.out_proj.weight"
    assert specs["heads.classification.output.kernel"].shape == (3, 768)


def test_identity_norm_has_no_weights():
    specs = tensor_specs(PRESETS["mobilebert"].config.replace(norm="identity"))
    assert not [path for path in specs if path.endswith(("gamma", "beta"))]


def test_old_names():
    assert modern_name("bert.embeddings.LayerNorm.gamma") == "bert.embeddings.LayerNorm.weight"
    assert modern_name("bert.embeddings.LayerNorm.beta") == "bert.embeddings.LayerNorm.bias"
    assert modern_name("bert.gamma.weight") == "bert.gamma.weight"
