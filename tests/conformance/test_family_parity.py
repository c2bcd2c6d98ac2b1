"""transformers' own classes read what we write, and give our answers.

Their `from_pretrained` of 4.57.6 cannot load a PyTorch-named safetensors file into a TensorFlow class, so the file goes
in through the function that it would call.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file
from tiny_models import (
    random_tensors,
    tiny_albert,
    tiny_bert,
    tiny_camembert,
    tiny_deberta,
    tiny_distilbert,
    tiny_electra,
    tiny_mobilebert,
    tiny_roberta,
    tiny_xlm_roberta,
)

from pocketbert import model as pocketbert_model
from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.families.registry import FAMILIES
from pocketbert.configs import RelativeConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples

transformers = pytest.importorskip("transformers")

LENGTHS = (11, 7, 4)
CLASSIFICATION = TaskConfig(kind="classification", labels=("bad", "so so", "good"))
MULTI_LABEL = TaskConfig(kind="multi_label", labels=("short", "funny", "sad", "true"))
SPAN = TaskConfig(kind="span", dropout=0.0)
TOKENS = TaskConfig(kind="token_classification", labels=("O", "B-PER", "I-PER"), dropout=0.3)
MASKED_LM = TaskConfig(kind="masked_lm", dropout=0.0)
NEXT_SENTENCE = TaskConfig(kind="next_sentence", dropout=0.0)

CASES = {
    "TFBertModel": (tiny_bert(), ()),
    "TFBertForSequenceClassification": (tiny_bert(activation="relu"), (CLASSIFICATION,)),
    "TFBertForQuestionAnswering": (tiny_bert(pooler="none"), (SPAN,)),
    "TFBertForTokenClassification": (tiny_bert(pooler="none"), (TOKENS,)),
    "TFRobertaForTokenClassification": (tiny_roberta(pooler="none"), (TOKENS,)),
    "TFMobileBertForTokenClassification": (tiny_mobilebert(), (TOKENS,)),
    "TFDistilBertForTokenClassification": (tiny_distilbert(), (TOKENS,)),
    "TFBertForPreTraining": (tiny_bert(activation="gelu_tanh"), (MASKED_LM, NEXT_SENTENCE)),
    "TFRobertaModel": (tiny_roberta(), ()),
    "TFRobertaForSequenceClassification": (tiny_roberta(pooler="none"), (CLASSIFICATION,)),
    "TFRobertaForMaskedLM": (tiny_roberta(pooler="none"), (MASKED_LM,)),
    "TFRobertaForQuestionAnswering": (tiny_roberta(pooler="none"), (SPAN,)),
    "TFXLMRobertaModel": (tiny_xlm_roberta(), ()),
    "TFXLMRobertaForSequenceClassification": (tiny_xlm_roberta(pooler="none"), (CLASSIFICATION,)),
    "TFXLMRobertaForMaskedLM": (tiny_xlm_roberta(pooler="none"), (MASKED_LM,)),
    "TFXLMRobertaForQuestionAnswering": (tiny_xlm_roberta(pooler="none"), (SPAN,)),
    "TFMobileBertForSequenceClassification": (tiny_mobilebert(), (CLASSIFICATION,)),
    "TFMobileBertForPreTraining": (tiny_mobilebert("bottleneck"), (MASKED_LM, NEXT_SENTENCE)),
    # A head with a tanh layer of its own and an encoder with a pooler are one function; either file must do.
    "TFBertForSequenceClassification, own dense": (tiny_bert(pooler="none"), (CLASSIFICATION,)),
    "TFRobertaForSequenceClassification, pooler": (tiny_roberta(), (CLASSIFICATION,)),
    "TFBertForSequenceClassification, multi_label": (tiny_bert(), (MULTI_LABEL,)),
    "TFRobertaForSequenceClassification, multi_label": (tiny_roberta(pooler="none"), (MULTI_LABEL,)),
    "TFMobileBertForSequenceClassification, one label of many": (
        tiny_mobilebert(),
        (TaskConfig(kind="multi_label", labels=("toxic",)),),
    ),
    "TFDistilBertModel": (tiny_distilbert(), ()),
    "TFDistilBertForSequenceClassification": (tiny_distilbert(activation="relu"), (CLASSIFICATION,)),
    "TFDistilBertForSequenceClassification, multi_label": (tiny_distilbert(), (MULTI_LABEL,)),
    "TFDistilBertForQuestionAnswering": (tiny_distilbert(), (SPAN,)),
    "TFDistilBertForMaskedLM": (tiny_distilbert(), (MASKED_LM,)),
    "TFElectraModel": (tiny_electra(), ()),
    "TFElectraForSequenceClassification": (tiny_electra(activation="relu"), (CLASSIFICATION,)),
    "TFElectraForSequenceClassification, whole embedding": (
        tiny_electra(embedding_size=20, embedding_projection="none"),
        (CLASSIFICATION,),
    ),
    "TFElectraForTokenClassification": (tiny_electra(), (TOKENS,)),
    "TFElectraForQuestionAnswering": (tiny_electra(), (SPAN,)),
    "TFElectraForMaskedLM": (tiny_electra(), (MASKED_LM,)),
    "TFCamembertModel": (tiny_camembert(), ()),
    "TFCamembertForSequenceClassification": (tiny_camembert(pooler="none"), (CLASSIFICATION,)),
    "TFCamembertForTokenClassification": (tiny_camembert(pooler="none"), (TOKENS,)),
    "TFCamembertForQuestionAnswering": (tiny_camembert(pooler="none"), (SPAN,)),
    "TFCamembertForMaskedLM": (tiny_camembert(pooler="none"), (MASKED_LM,)),
    "TFBertForSequenceClassification, regression": (tiny_bert(), (TaskConfig(kind="regression"),)),
    "TFAlbertModel": (tiny_albert(activation="gelu"), ()),
    "TFAlbertModel, two groups": (tiny_albert(layer_groups=2, num_layers=6), ()),
    "TFAlbertModel, equal widths": (tiny_albert(embedding_size=20), ()),
    "TFAlbertForSequenceClassification": (tiny_albert(), (CLASSIFICATION,)),
    "TFAlbertForSequenceClassification, two groups": (tiny_albert(layer_groups=2), (MULTI_LABEL,)),
    "TFAlbertForTokenClassification": (tiny_albert(pooler="none", activation="relu"), (TOKENS,)),
    "TFAlbertForQuestionAnswering": (tiny_albert(pooler="none"), (SPAN,)),
    "TFAlbertForMaskedLM": (tiny_albert(pooler="none"), (MASKED_LM,)),
    "TFDebertaV2Model": (tiny_deberta(), ()),
    "TFDebertaV2ForSequenceClassification": (tiny_deberta(activation="relu"), (CLASSIFICATION,)),
    "TFDebertaV2ForSequenceClassification, segments and far distances": (
        tiny_deberta(type_vocab_size=3, relative=RelativeConfig(buckets=4, max_distance=8)),
        (CLASSIFICATION,),
    ),
    "TFDebertaV2ForTokenClassification": (tiny_deberta(), (TOKENS,)),
    "TFDebertaV2ForQuestionAnswering": (tiny_deberta(), (SPAN,)),
    "TFDebertaV2ForMaskedLM": (tiny_deberta(), (MASKED_LM,)),
}
# A tied tensor that transformers' TensorFlow class reads, and its PyTorch class leaves out of files → the original.
COPIES = {
    "TFMobileBertForPreTraining": ("cls.predictions.decoder.weight", "mobilebert.embeddings.word_embeddings.weight"),
    "TFAlbertForMaskedLM": ("predictions.decoder.bias", "predictions.bias"),
}


def batch(config):
    """B=3, S=11 right-padded with the pad id, which RoBERTa's position ids and MobileBERT's trigrams read."""
    generator = np.random.default_rng(5)
    mask = (np.arange(11) < np.array(LENGTHS)[:, None]).astype(np.int32)
    ids = generator.integers(3, config.vocab_size, [3, 11])
    segments = generator.integers(0, max(config.type_vocab_size, 1), [3, 11])
    return {
        "input_word_ids": tf.constant(np.where(mask, ids, config.pad_token_id), tf.int32),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.constant(segments, tf.int32),
    }


def reference_config(folder, name):
    config = transformers.AutoConfig.from_pretrained(folder)
    if name.startswith("TFElectraForSequenceClassification"):
        # Their class reads this rate, for training only, by a misspelt name.
        config.classifier_dropout = None
    return config


def stored_tensors(folder, class_name):
    tensors = load_file(folder / "model.safetensors")
    if class_name in COPIES:
        copy, original = COPIES[class_name]
        tensors[copy] = tensors[original]
    return tensors


# Each head once, and once more where a family has another name for it.
@pytest.mark.one_of_each(
    "TFBertForSequenceClassification",
    "TFBertForSequenceClassification, own dense",
    "TFBertForSequenceClassification, regression",
    "TFBertForQuestionAnswering",
    "TFBertForTokenClassification",
    "TFBertForPreTraining",
    "TFRobertaForSequenceClassification",
    "TFRobertaForMaskedLM",
    "TFXLMRobertaModel",
    "TFMobileBertForPreTraining",
    "TFDistilBertForSequenceClassification",
    "TFDistilBertForMaskedLM",
    "TFElectraForSequenceClassification",
    "TFElectraForMaskedLM",
    "TFCamembertForMaskedLM",
    "TFAlbertModel, two groups",
    "TFAlbertForSequenceClassification",
    "TFAlbertForMaskedLM",
    "TFDebertaV2ForSequenceClassification, segments and far distances",
    "TFDebertaV2ForMaskedLM",
)
@pytest.mark.parametrize("name", CASES)
def test_their_class_gives_our_answers(name, tmp_path):
    config, tasks = CASES[name]
    tensors = {path: 0.2 * tensor for path, tensor in random_tensors(config, tasks).items()}
    write_directory(tmp_path / "model", config, tasks, tensors, None)

    theirs_config = reference_config(tmp_path / "model", name)
    content = json.loads((tmp_path / "model/config.json").read_text())
    class_name = name.split(",")[0]
    assert theirs_config.model_type == config.model_type
    assert content["architectures"] == [class_name.removeprefix("TF")]
    reference_model = getattr(transformers, class_name)(theirs_config)
    stored = stored_tensors(tmp_path / "model", class_name)
    reference_model, loading = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(
        reference_model, stored, allow_missing_keys=False, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["mismatched_keys"]
    # A tensor that nobody reads would be a wrong name.
    assert not loading["unexpected_keys"]

    inputs = batch(config)
    model = pocketbert_model.from_pretrained(tmp_path / "model")
    expected = reference_model(
        input_ids=inputs["input_word_ids"],
        attention_mask=inputs["input_mask"],
        **({"token_type_ids": inputs["input_type_ids"]} if config.type_vocab_size else {}),
        output_hidden_states=True,
    )
    states = model.features(inputs, ["hidden_states"])["hidden_states"]
    # 2e-5 is what two correct float32 implementations reach at these sizes (tests/goldens/huggingface/README.md).
    for one, other in zip(states, expected.hidden_states, strict=True):
        assert_close(one, other)
    answers = model(inputs)
    if not tasks:
        assert_close(answers["sequence_output"], expected.last_hidden_state)
        if config.pooler != "none":
            assert_close(answers["pooled_output"][:, None], expected.pooler_output[:, None])
    for output, answer in answers.items() if tasks else ():
        names = {"prediction_logits": "logits" if "MaskedLM" in class_name else "prediction_logits"}
        names["token_logits"] = "logits"
        other = expected[names.get(output, output)]
        if answer.shape.rank == 1:
            other = other[:, 0]
        per_token = answer.shape.rank > 1 and answer.shape[1] == 11
        assert_close(answer, other) if per_token else assert_close(answer[:, None], other[:, None])


@pytest.mark.parametrize("embedding_size", [6, 20])
def test_discriminators_are_read_without_their_head(embedding_size, tmp_path):
    projection = "output" if embedding_size < 20 else "none"
    config = tiny_electra(embedding_size=embedding_size, embedding_projection=projection)
    write_directory(tmp_path / "model", config, (), random_tensors(config), None)
    reference_model = transformers.TFElectraForPreTraining(transformers.AutoConfig.from_pretrained(tmp_path / "model"))
    inputs = batch(config)
    names = {"input_word_ids": "input_ids", "input_mask": "attention_mask", "input_type_ids": "token_type_ids"}
    expected = reference_model({names[name]: array for name, array in inputs.items()}, output_hidden_states=True)
    reference_model.save_pretrained(tmp_path / "theirs", safe_serialization=True)
    content = json.loads((tmp_path / "theirs/config.json").read_text())
    assert content["architectures"] == ["ElectraForPreTraining"]
    model = pocketbert_model.from_pretrained(tmp_path / "theirs")
    assert model.config == config and not model.tasks
    assert_close(model(inputs)["sequence_output"], expected.hidden_states[-1])


def test_every_family_is_compared():
    # ModernBERT has no TensorFlow class: tests/pocketbert/layers/test_rotary_block.py has PyTorch's outputs.
    assert {config.model_type for config, _ in CASES.values()} == FAMILIES.keys() - {"modernbert"}


@pytest.mark.usefixtures("eager")
def test_texts_of_trigram_models_have_one_value(tmp_path):
    """The value of their class for padded texts, whatever the batch."""
    config = tiny_mobilebert()
    tensors = {path: 0.2 * tensor for path, tensor in random_tensors(config, (CLASSIFICATION,)).items()}
    assert np.abs(tensors["encoder.embeddings.word.table"][config.pad_token_id]).max() > 0.1
    write_directory(tmp_path / "model", config, (CLASSIFICATION,), tensors, None)
    reference_model = transformers.TFMobileBertForSequenceClassification(
        transformers.AutoConfig.from_pretrained(tmp_path / "model")
    )
    reference_model = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(
        reference_model, load_file(tmp_path / "model/model.safetensors")
    )
    inputs = {name: array.numpy() for name, array in batch(config).items()}
    # One more column: every text has padding.
    ids, mask, segments = (np.pad(array, [[0, 0], [0, 1]]) for array in inputs.values())
    expected = reference_model(
        input_ids=np.where(mask, ids, config.pad_token_id), attention_mask=mask, token_type_ids=segments
    ).logits.numpy()
    model = pocketbert_model.from_pretrained(tmp_path / "model")
    rows = [inputs["input_word_ids"][index, :count] for index, count in enumerate(LENGTHS)]
    types = [inputs["input_type_ids"][index, :count] for index, count in enumerate(LENGTHS)]

    def answers(chosen):
        encoded = EncodedExamples(
            word_ids=np.concatenate([rows[index] for index in chosen]),
            type_ids=np.concatenate([types[index] for index in chosen]),
            offsets=np.cumsum([0, *(len(rows[index]) for index in chosen)]),
            labels=None,
            max_length=11,
            pad_token_id=config.pad_token_id,
        )
        return model.forward(encoded)["logits"]

    assert_close(answers([0, 1, 2])[:, None], expected[:, None])
    assert_close(np.concatenate([answers([index]) for index in range(3)])[:, None], expected[:, None])


@pytest.mark.one_of_each(
    "TFBertModel-safetensors",
    "TFBertForPreTraining-tf_model.h5",
    "TFRobertaForSequenceClassification-tf_model.h5",
    "TFRobertaForMaskedLM-safetensors",
    "TFXLMRobertaForQuestionAnswering-tf_model.h5",
    "TFMobileBertForPreTraining-tf_model.h5",
    "TFDistilBertForSequenceClassification-tf_model.h5",
    "TFDistilBertForMaskedLM-safetensors",
    "TFAlbertForMaskedLM-tf_model.h5",
    "TFDebertaV2ForSequenceClassification-tf_model.h5",
)
@pytest.mark.parametrize("safetensors", [False, True], ids=["tf_model.h5", "safetensors"])
@pytest.mark.parametrize("name", [name for name in CASES if "," not in name])
def test_files_of_their_tensorflow_classes_are_read(name, safetensors, tmp_path):
    config, tasks = CASES[name]
    tensors = {path: 0.2 * tensor for path, tensor in random_tensors(config, tasks).items()}
    write_directory(tmp_path / "model", config, tasks, tensors, None)
    reference_model = getattr(transformers, name)(reference_config(tmp_path / "model", name))
    stored = stored_tensors(tmp_path / "model", name)
    reference_model = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(
        reference_model, stored
    )
    reference_model.save_pretrained(tmp_path / "theirs", safe_serialization=safetensors)
    files = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert files == {"config.json", "model.safetensors" if safetensors else "tf_model.h5"}
    directory = read_directory(tmp_path / "theirs")
    assert (directory.config, [task.kind for task in directory.tasks]) == (config, [task.kind for task in tasks])
    if tasks == (TOKENS,):
        assert directory.tasks == tasks
    assert directory.tensors.keys() == tensors.keys()
    for path, tensor in tensors.items():
        np.testing.assert_array_equal(directory.tensors[path], tensor, err_msg=path)


def assert_close(one, other):
    """Equal at real tokens, as far as the values' own size goes."""
    one, other = np.asarray(one), np.asarray(other)
    for row, length in enumerate(LENGTHS):
        scale = max(1.0, float(np.abs(other[row, :length]).max()))
        np.testing.assert_allclose(one[row, :length] / scale, other[row, :length] / scale, atol=2e-5, rtol=0)


def test_labels_are_theirs(tmp_path):
    config = tiny_bert()
    write_directory(
        tmp_path / "model",
        config,
        (CLASSIFICATION,),
        random_tensors(config, (CLASSIFICATION,)),
        None,
    )
    reference_config = transformers.AutoConfig.from_pretrained(tmp_path / "model")
    assert reference_config.id2label == {0: "bad", 1: "so so", 2: "good"}
    assert reference_config.num_labels == 3
