"""Tables with more rows than tokens, and padding ids that change nothing; transformers' TF classes are the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_models import SENTIMENT, random_tensors, tiny_bert, tiny_mobilebert, tiny_xlm_roberta
from tiny_tokenizers import unigram_file

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.checkpoints.spare_rows import MOST_SPARE_ROWS
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError
from pocketbert.pruning.vocabulary import trim_vocabulary
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
TEXTS = ["a bad cab", "Head"]
MASKED_LM = TaskConfig(kind="masked_lm", dropout=0.0)
NEXT_SENTENCE = TaskConfig(kind="next_sentence", dropout=0.0)


def padded_model(folder: Path, config: EncoderConfig, tasks: tuple[TaskConfig, ...], vocabulary: Vocabulary) -> Path:
    """A directory whose table has more rows than the vocabulary has tokens."""
    tensors = {path: 0.2 * tensor for path, tensor in random_tensors(config, tasks).items()}
    write_directory(folder, config, tasks, tensors, None)
    for file, name in zip(vocabulary.files, ("vocab.txt", "merges.txt"), strict=False):
        name = name if vocabulary.kind == "wordpiece" else "sentencepiece.bpe.model"
        (folder / name).write_bytes(file.read_bytes())
    return folder


def wordpiece(folder: Path) -> Vocabulary:
    folder.mkdir(exist_ok=True)
    (folder / "pieces.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return Vocabulary(path=folder / "pieces.txt")


def theirs(folder: Path, class_name: str, inputs: dict[str, Any]) -> Any:
    """The outputs of transformers' class."""
    import transformers

    model = getattr(transformers, class_name)(transformers.AutoConfig.from_pretrained(folder))
    stored = load_file(folder / "model.safetensors")
    if class_name == "TFMobileBertForPreTraining":
        stored["cls.predictions.decoder.weight"] = stored["mobilebert.embeddings.word_embeddings.weight"]
    load = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model
    model = load(model, stored, allow_missing_keys=False)
    names = {"input_ids": "input_word_ids", "attention_mask": "input_mask", "token_type_ids": "input_type_ids"}
    return model({name: inputs[key] for name, key in names.items()})


@pytest.mark.usefixtures("eager")
def test_padded_classifier_gives_equal_logits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_bert(vocab_size=64)
    folder = padded_model(tmp_path / "model", config, (SENTIMENT,), wordpiece(tmp_path))
    model = pb.from_pretrained(folder)
    assert model.config.vocab_size == len(PIECES) == model.tokenizer.vocab_size
    assert "vocab.txt has 21 tokens for 64 rows of word embeddings; the last 43 rows are not used" in (
        capsys.readouterr().err
    )
    inputs = model.tokenizer(TEXTS)
    expected = theirs(folder, "TFBertForSequenceClassification", inputs).logits
    np.testing.assert_allclose(model(inputs)["logits"], expected, atol=2e-5)
    model.save_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(pb.from_pretrained(tmp_path / "saved")(inputs)["logits"], model(inputs)["logits"])


@pytest.mark.usefixtures("eager")
def test_padded_xlm_r_gives_equal_logits(tmp_path: Path) -> None:
    path = unigram_file(tmp_path)
    tokens = len(Vocabulary(path=path, kind="unigram").tokens())
    config = tiny_xlm_roberta(vocab_size=tokens + 35, pooler="none")
    folder = padded_model(tmp_path / "model", config, (SENTIMENT,), Vocabulary(path=path, kind="unigram"))
    model = pb.from_pretrained(folder)
    assert model.config.vocab_size == tokens
    inputs = model.tokenizer(["the cat sat on the mat", "中文"])
    expected = theirs(folder, "TFXLMRobertaForSequenceClassification", inputs).logits
    np.testing.assert_allclose(model(inputs)["logits"], expected, atol=2e-5)


@pytest.mark.one_of_each("config0-TFBertForPreTraining")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("config", "class_name"),
    [
        (tiny_bert(vocab_size=31), "TFBertForPreTraining"),
        (tiny_mobilebert(vocab_size=31), "TFMobileBertForPreTraining"),
    ],
)
def test_masked_lm_heads_lose_the_rows(config: EncoderConfig, class_name: str, tmp_path: Path) -> None:
    folder = padded_model(tmp_path / "model", config, (MASKED_LM, NEXT_SENTENCE), wordpiece(tmp_path))
    model = pb.from_pretrained(folder)
    inputs = model.tokenizer([TEXTS[0]])
    expected = theirs(folder, class_name, inputs).prediction_logits[:, :, : len(PIECES)]
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(model(inputs)["prediction_logits"] / scale, expected / scale, atol=2e-5)
    model.save_pretrained(tmp_path / "saved")


@pytest.mark.usefixtures("eager")
def test_padded_model_is_trimmed(tmp_path: Path) -> None:
    folder = padded_model(tmp_path / "model", tiny_bert(vocab_size=64), (SENTIMENT,), wordpiece(tmp_path))
    (tmp_path / "text.txt").write_text("\n".join(["a cab", "bad head"] * 20) + "\n", encoding="utf-8")
    result = trim_vocabulary(folder, [tmp_path / "text.txt"], tmp_path / "trimmed")
    assert result.tokens[0] == len(PIECES)
    whole, trimmed = pb.from_pretrained(folder), pb.from_pretrained(tmp_path / "trimmed")
    one, other = (model(model.tokenizer(TEXTS[:1]))["logits"] for model in (whole, trimmed))
    np.testing.assert_array_equal(one, other)


def test_padded_teacher_and_student_share_ids(tmp_path: Path) -> None:
    from pocketbert.distillation.method import DistillationSpec, vocabulary_problems
    from pocketbert.training.initialization import plan_model

    folder = padded_model(tmp_path / "teacher", tiny_bert(vocab_size=64), (SENTIMENT,), wordpiece(tmp_path))
    teacher = plan_model(folder)
    # A directory, the config.json in it for new weights, and an architecture with the number of tokens.
    for student in (folder, folder / "config.json", tiny_bert(vocab_size=len(PIECES), num_layers=1)):
        start = plan_model(student)
        spec = DistillationSpec(
            teacher=teacher.config,
            student=start.config,
            task=SENTIMENT,
            pairs=False,
            teacher_vocabulary=teacher.vocabulary,
            student_vocabulary=start.vocabulary,
        )
        assert vocabulary_problems(spec) == []


def test_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    config = tiny_bert(vocab_size=len(PIECES) + MOST_SPARE_ROWS)
    folder = padded_model(tmp_path / "model", config, (), wordpiece(tmp_path))
    message = "received 21 tokens for 1045 rows; take the tokenizer files from the model's own folder"
    with pytest.raises(UserError, match=message):
        read_directory(folder)


@pytest.mark.usefixtures("eager")
def test_multilingual_bert_ignores_its_padding_id(tmp_path: Path) -> None:
    """Multilingual MiniLM and E5: BERT with XLM-R's tokenizer, whose <pad> is 1, and pad_token_id 0."""
    import transformers

    path = unigram_file(tmp_path)
    tokens = len(Vocabulary(path=path, kind="unigram").tokens())
    config = tiny_bert(vocab_size=tokens + 35, max_position_embeddings=37)
    folder = padded_model(tmp_path / "model", config, (), Vocabulary(path=path, kind="unigram"))
    options = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    texts = ["the cat sat on the mat", "an ﬁnal oﬃce", "中文 Привет"]
    model = pb.from_pretrained(folder)
    inputs = model.tokenizer(texts)
    encoded = transformers.XLMRobertaTokenizer(str(path))(texts, padding=True, return_tensors="np")
    np.testing.assert_array_equal(inputs["input_word_ids"], encoded["input_ids"])
    assert model.config.pad_token_id == 0 and set(encoded["input_ids"][encoded["attention_mask"] == 0]) == {1}
    expected = theirs(folder, "TFBertModel", inputs)
    real = np.asarray(inputs["input_mask"]) == 1
    states = model(inputs)["sequence_output"].numpy()
    np.testing.assert_allclose(states[real], expected.last_hidden_state.numpy()[real], atol=2e-5)
    model.save_pretrained(tmp_path / "saved")
    again = pb.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(again(again.tokenizer(texts))["sequence_output"], states)


def test_padding_id_of_positions_is_checked(tmp_path: Path) -> None:
    path = unigram_file(tmp_path)
    tokens = len(Vocabulary(path=path, kind="unigram").tokens())
    config = tiny_xlm_roberta(vocab_size=tokens, pad_token_id=2, position_offset=3)
    folder = padded_model(tmp_path / "model", config, (), Vocabulary(path=path, kind="unigram"))
    with pytest.raises(
        UserError, match="pad_token_id must be the id of <pad> in sentencepiece.bpe.model, 1; received 2"
    ):
        read_directory(folder)
