"""Batched candidates from a masked-LM model, compared with one word at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_masked_lm

import pocketbert as pb
from pocketbert.augmentation.augmented_rows import AugmentationOptions, Slot
from pocketbert.augmentation.glove import WordVectors, read_glove
from pocketbert.augmentation.mlm_candidates import MLMCandidates
from pocketbert.augmentation.word_candidates import WordCandidates, is_eligible
from pocketbert.errors import UserError
from pocketbert.model import Model

PIECES = tiny_masked_lm.PIECES
CLS, SEP, MASK = (PIECES.index(piece) for piece in ("[CLS]", "[SEP]", "[MASK]"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_masked_lm.write_model(tmp_path_factory.mktemp("models") / "masked-lm")


@pytest.fixture(scope="module")
def model(directory: Path) -> Model:
    return pb.from_pretrained(directory)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> WordVectors:
    return read_glove(tiny_masked_lm.write_glove(tmp_path_factory.mktemp("glove") / "vectors.txt"))


def is_word(piece: str) -> bool:
    return not piece.startswith("##") and not (piece.startswith("[") and piece.endswith("]") and len(piece) > 2)


def ranked(model: Model, first: list[int], second: list[int], position: int) -> list[str]:
    """All tokens, most probable first, for one row alone, without padding."""
    inputs = {
        "input_word_ids": [first + second],
        "input_mask": [[1] * len(first + second)],
        "input_type_ids": [[0] * len(first) + [1] * len(second)],
    }
    outputs = model({name: tf.constant(rows, tf.int32) for name, rows in inputs.items()})
    logits = outputs["prediction_logits"][0, position].numpy()
    # Sums of 30 products in another order: logits of order 1 differ by about 30 * 2^-24 = 2e-6 at most; ranks are only
    # comparable where gaps are larger.
    assert np.diff(np.sort(logits)[-12:]).min() > 5e-6
    return [PIECES[index] for index in np.argsort(-logits, kind="stable")]


def one_at_a_time(model: Model, ids: list[int], position: int, count: int, mode: str, fill: bool) -> list[str]:
    masked = [CLS, *ids[:position], MASK, *ids[position + 1 :], SEP]
    pieces = ranked(model, masked, [*ids, SEP] if mode == "with-original" else [], position + 1)
    return [piece for piece in pieces if is_word(piece)][:count] if fill else list(filter(is_word, pieces[:count]))


@pytest.mark.usefixtures("eager")
@pytest.mark.one_of_each("with-original-True", "alone-False")
@pytest.mark.parametrize(("mode", "fill"), [("alone", True), ("with-original", True), ("alone", False)])
def test_batched_candidates_equal_single_calls(model: Model, mode: str, fill: bool) -> None:
    words = MLMCandidates(model, count=7, masked_input=mode, fill=fill, tokens_a_batch=61)  # type: ignore[arg-type]
    texts = tiny_masked_lm.sentences(24)
    assert model.tokenizer is not None
    sentences = [np.array(row) for row in model.tokenizer.tokenize(texts).to_list() if len(row) < 13]
    # Every second place from the first or second on, so that each sentence asks for its own.
    positions = [range(number % 2, len(row), 2) for number, row in enumerate(sentences)]
    told: list[int] = []
    answers = words.candidates(sentences, positions, told.append)
    assert [list(slots) for slots in answers] == [list(position) for position in positions]
    assert sum(told) == sum(map(len, positions)) > 50 and len(told) > 5
    shorter = 0
    for row, places in zip(sentences, answers, strict=True):
        for index, candidates in places.items():
            assert list(candidates) == one_at_a_time(model, row.tolist(), index, 7, mode, fill)
            shorter += len(candidates) < 7
    assert (shorter > 0) == (not fill)


def test_candidates_do_not_depend_on_batch(model: Model) -> None:
    words = MLMCandidates(model, count=5, tokens_a_batch=77)
    assert model.tokenizer is not None
    sentences = [np.array(row) for row in model.tokenizer.tokenize(tiny_masked_lm.sentences(40, seed=2)).to_list()]
    together = words.candidates(sentences, [range(len(row)) for row in sentences])
    order = np.random.default_rng(0).permutation(40)
    shuffled = words.candidates(
        [sentences[index] for index in order], [range(len(sentences[index])) for index in order]
    )
    assert shuffled == [together[index] for index in order]
    for number in (0, 17, 39):
        alone = words.candidates([sentences[number]], [range(len(sentences[number]))])
        assert alone == [together[number]]


@pytest.mark.parametrize("mode", ["alone", "with-original"])
def test_long_sentence_is_cut_around_mask(model: Model, mode: str) -> None:
    words = MLMCandidates(model, count=3, max_length=13, masked_input=mode)  # type: ignore[arg-type]
    ids = np.random.default_rng(3).integers(6, 60, 40).tolist()
    room = 11 if mode == "alone" else 5
    (candidates,) = words.candidates([np.array(ids)], [[0, 20, 39]])
    for position, start in ((0, 0), (20, 20 - room // 2), (39, 40 - room)):
        window = ids[start : start + room]
        assert list(candidates[position]) == one_at_a_time(model, window, position - start, 3, mode, fill=True)


@pytest.mark.one_of_each("bert", "efficientbert", "mobilebert")
@pytest.mark.parametrize("family", sorted(tiny.FAMILIES))
def test_last_layer_at_positions_is_equal(family: str) -> None:
    from pocketbert.encoder import Encoder

    config = tiny.FAMILIES[family]
    encoder = Encoder(config, seed=4)
    inputs = tiny.batch(config)
    positions = tf.constant([[0, 6], [3, 1], [5, 5]])
    expected = tf.gather(encoder(inputs)["sequence_output"], positions, batch_dims=1).numpy()
    outputs = encoder.at_positions(inputs, positions).numpy()
    assert outputs.shape == (3, 2, config.hidden_size)
    # The same sums of some hundred float32 products, perhaps in another order: 100 * 2^-24 = 6e-6 of the largest value.
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=6e-6 * max(1, np.abs(expected).max()))


def test_models_without_mlm_are_refused(model: Model) -> None:
    bare = pb.from_preset(tiny_masked_lm.CONFIG, tokenizer=model.tokenizer)
    classifier = pb.from_preset(
        tiny_masked_lm.CONFIG, [pb.TaskConfig(kind="classification", labels=("a", "b"))], tokenizer=model.tokenizer
    )
    mute = pb.from_preset(tiny_masked_lm.CONFIG, [pb.TaskConfig(kind="masked_lm")])
    for wrong, message in (
        (bare, "an encoder without heads"),
        (classifier, "for classification"),
        (mute, "vocab.txt"),
    ):
        with pytest.raises(UserError, match=message):
            MLMCandidates(wrong, count=3)
    words = sum(map(is_word, PIECES))
    with pytest.raises(UserError, match=f"1 to {words} for this vocabulary; received {words + 1}"):
        MLMCandidates(model, count=words + 1)
    with pytest.raises(UserError, match=f"0 or 3 to {tiny.BERT.max_position_embeddings} for this model; received 30"):
        MLMCandidates(model, count=3, max_length=30)


def slots_of(model: Model, vectors: WordVectors | None, text: str, **options: object) -> dict[str, tuple[str, ...]]:
    chosen = AugmentationOptions(num_candidates=4, **options)  # type: ignore[arg-type]
    (sentence,) = WordCandidates(model, vectors, chosen)([text])
    assert sentence.text == text
    return {text[slot.start : slot.end]: slot.candidates for slot in sentence.slots}


def test_model_fills_single_tokens_vectors_others(model: Model, vectors: WordVectors) -> None:
    text = "The Actor wasn't playing, [SEP] was  bad! 42 exxe"
    assert model.tokenizer is not None
    (ids,) = model.tokenizer.tokenize([text]).to_list()
    spelled = "the actor was ##[UNK]".split()[:2]
    assert [PIECES[token_id] for token_id in ids[:2]] == spelled
    slots = slots_of(model, vectors, text)
    # "wasn" and "exxe" have no vector; the literal [SEP] and punctuation are no words.
    assert list(slots) == ["The", "Actor", "t", "playing", "was", "bad", "42"]
    for word, position in (("The", 0), ("Actor", 1), ("bad", ids.index(PIECES.index("bad")))):
        assert list(slots[word]) == one_at_a_time(model, ids, position, 4, "alone", fill=True)
    assert slots["playing"] == vectors.neighbours(["playing"], 4)["playing"]
    assert list(slots_of(model, vectors, text, words="content")) == ["Actor", "playing", "bad"]
    assert list(slots_of(model, None, text, words="content")) == ["Actor", "bad"]
    assert slots_of(model, vectors, "!, -") == {}


@pytest.mark.parametrize(
    ("form", "all_words", "content"),
    [
        ("film", 1, 1),
        ("Film", 1, 1),
        ("the", 1, 0),
        ("The", 1, 0),
        ("42", 1, 0),
        ("été", 1, 0),
        ("!", 0, 0),
        ("", 0, 0),
    ],
)
def test_which_words_may_be_replaced(form: str, all_words: int, content: int) -> None:
    assert (is_eligible(form, "all"), is_eligible(form, "content")) == (bool(all_words), bool(content))


def test_capitalized_words_get_capitalized_neighbours(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*PIECES[:-1], "Walk"]) + "\n", encoding="utf-8")
    tokenizer = pb.WordPieceTokenizer(tmp_path / "vocab.txt", lowercase=False)
    cased = pb.from_preset(tiny_masked_lm.CONFIG, [pb.TaskConfig(kind="masked_lm")], tokenizer=tokenizer)
    table = WordVectors(["walked", "went", "ran"], np.array([[1.0, 0.0], [1, 0.1], [1, 0.2]]))
    assert slots_of(cased, table, "Walked walked") == {"Walked": ("Went", "Ran"), "walked": ("went", "ran")}


def test_repeated_sentence_is_cached(model: Model, vectors: WordVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    find = WordCandidates(model, vectors, AugmentationOptions(num_candidates=4))
    rows: list[int] = []
    original = MLMCandidates.candidates

    def counted(self: MLMCandidates, sentences: list[np.ndarray], positions: list[list[int]], *rest: object) -> object:
        rows.append(sum(map(len, positions)))
        return original(self, sentences, positions, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(MLMCandidates, "candidates", counted)
    told: list[int] = []
    texts = ["the film", "a bad film", "the film", "", "the film"]
    slots = find(texts, told.append)
    assert rows == [5] and sum(told) == 5
    assert slots[0] is slots[2] and slots[3].slots == ()
    assert slots[0].slots[0] == Slot(0, 3, slots[0].slots[0].candidates)
    again = find(["a bad film", "the film"], told.append)
    assert rows == [5] and sum(told) == 7
    assert again == [slots[1], slots[0]]


@pytest.mark.nightly
@pytest.mark.data
def test_real_sentences_and_vectors(shared: Path, tmp_path: Path) -> None:
    """Random weights, real vocabulary, sentences and vectors: what must hold whatever the network says."""
    from pocketbert.data.readers.glue import read_glue

    tokenizer = pb.WordPieceTokenizer(shared / "data" / "vocab" / "bert-base-uncased.vocab.txt")
    config = tiny_masked_lm.CONFIG.replace(vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    real = pb.from_preset(config, [pb.TaskConfig(kind="masked_lm")], tokenizer=tokenizer, seed=0)
    table = read_glove(shared / "data" / "glove" / "glove.twitter.27B.25d.subset11925.txt")
    # Words of several tokens that these vectors have are rare in SST-2.
    several = {"stylish", "laptops", "decorating", "refresh", "puppies", "toddler", "pics"}
    all_texts = read_glue("sst2", shared / "data" / "glue", "train").texts[:3000]
    texts = [*all_texts[:24], *(text for text in all_texts if several & set(text.split()))]
    candidates = WordCandidates(real, table, AugmentationOptions())(texts)
    words = neighbours = 0
    for text, sentence in zip(texts, candidates, strict=True):
        counts = {word: len(tokenizer.tokenize([word]).to_list()[0]) for word in text.split()}
        for slot in sentence.slots:
            word = text[slot.start : slot.end]
            assert len(set(slot.candidates)) == 15 and not any(
                candidate.startswith("##") for candidate in slot.candidates
            )
            words += 1
            if counts.get(word, 1) > 1 and word.isalpha():
                assert slot.candidates == table.neighbours([word], 15)[word]
                neighbours += 1
    assert words > 200 and neighbours > 7
