"""Windows on real questions, compared with tf-models-official and MLPerf's mini set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketbert.data.readers.questions import QuestionFile
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_runtime.windows import Question, WindowOptions, make_windows, stream_windows


@pytest.mark.one_of_each("(71, 19, 11)")
@pytest.mark.data
@pytest.mark.parametrize("sizes", [(384, 128, 64), (71, 19, 11)], ids=str)
def test_real_windows_match_tf_models_official(shared: Path, tmp_path: Path, sizes: tuple[int, int, int]) -> None:
    from official.nlp.data import squad_lib
    from official.nlp.tools import tokenization

    max_length, stride, max_question_tokens = sizes
    file = QuestionFile(shared / "data/squad/train-v1.1.json")
    questions = list(file.select(range(0, len(file), 23)))
    paragraphs = [
        {
            "context": question.context,
            "qas": [
                {
                    "id": question.id,
                    "question": question.question,
                    # The baseline wants one answer for training.
                    "answers": [{"text": question.answers[0], "answer_start": question.starts[0]}],
                }
            ],
        }
        for question in questions
    ]
    path = tmp_path / "one_answer.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    vocabulary = shared / "data/vocab/bert-base-uncased.vocab.txt"
    features: list[Any] = []
    squad_lib.convert_examples_to_features(
        squad_lib.read_squad_examples(str(path), is_training=True, version_2_with_negative=False),
        tokenization.FullTokenizer(str(vocabulary), do_lower_case=True),
        max_length,
        stride,
        max_question_tokens,
        is_training=True,
        output_fn=features.append,
    )
    options = WindowOptions(max_length=max_length, stride=stride, max_question_tokens=max_question_tokens)
    windows = make_windows(questions, WordPieceTokenizer(vocabulary), options)
    assert len(features) == len(windows) >= len(questions) == 180
    for w, feature in enumerate(features):
        tokens = slice(*windows.offsets[w : w + 2])
        padding = [0] * (max_length - (tokens.stop - tokens.start))
        assert windows.word_ids[tokens].tolist() + padding == feature.input_ids
        assert windows.type_ids[tokens].tolist() + padding == feature.segment_ids
        most = {position for position, is_most in feature.token_is_max_context.items() if is_most}
        assert set(np.flatnonzero(windows.most_context[tokens]).tolist()) == most
        assert windows.positions[w].tolist() == [feature.start_position, feature.end_position]
        assert windows.question_index[w] == feature.example_index


@pytest.mark.one_of_each(
    "squad/train-v1.1.json-bert-base-uncased", "tydiqa/tydiqa.goldp.ko.train.json-bert-base-multilingual-cased"
)
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        ("squad/train-v1.1.json", "bert-base-uncased"),
        ("mlqa/dev-context-ar-question-ar.json", "bert-base-multilingual-cased"),
        ("mlqa/dev-context-zh-question-zh.json", "bert-base-multilingual-cased"),
        ("tydiqa/tydiqa.goldp.ko.train.json", "bert-base-multilingual-cased"),
    ],
)
def test_all_real_answers_are_found(shared: Path, name: str, vocabulary: str) -> None:
    """Where an answer ends inside a token ("Japan" of "Japanese", Korean particles), the token is taken whole."""
    tokenizer = WordPieceTokenizer(shared / f"data/vocab/{vocabulary}.vocab.txt", lowercase="uncased" in vocabulary)
    file = QuestionFile(shared / "data" / name)
    for chunk, windows in stream_windows(file.select(range(0, len(file), 5)), tokenizer, WindowOptions()):
        with_answer = np.flatnonzero(windows.positions.any(axis=1))
        assert set(windows.question_index[with_answer].tolist()) == set(range(len(chunk)))
        for w in with_answer:
            question = chunk[windows.question_index[w]]
            answer = question.answers[0].strip()
            start = question.context.index(answer, question.starts[0])
            first, last = windows.offsets[w] + windows.positions[w]
            assert windows.char_starts[first] <= start < windows.char_ends[first]
            assert windows.char_starts[last] < start + len(answer) <= windows.char_ends[last]


@pytest.mark.data
def test_windows_match_mlperf_mini_set(shared: Path) -> None:
    """Nothing differs from the 100 records: 384 tokens, no paragraph so long that it has a second window.

    They are of SQuAD 1.1's article on Super Bowl 50. All four paragraphs are in the shared part of SQuAD, and 92
    questions by their ids; the other eight are put together of the record's tokens.
    """
    import tensorflow as tf

    path = str(shared / "data/mlperf/squad_eval_mini.tfrecord")
    records = [
        tf.train.Example.FromString(record).features.feature
        for record in tf.data.TFRecordDataset(path, compression_type="ZLIB").as_numpy_iterator()
    ]
    file = QuestionFile(shared / "data/squad/train-v1.1.json")
    by_id = {question.id: question for question in file}
    pieces = [[piece.decode() for piece in record["tokens"].bytes_list.value] for record in records]
    ids = [record["qas_id"].bytes_list.value[0].decode() for record in records]
    contexts = {
        tuple(window[window.index("[SEP]") :]): by_id[name].context
        for name, window in zip(ids, pieces, strict=True)
        if name in by_id
    }
    questions = []
    for name, window in zip(ids, pieces, strict=True):
        separator = window.index("[SEP]")
        rebuilt = " ".join(window[1:separator]).replace(" ##", "")
        questions.append(by_id.get(name) or Question("", rebuilt, contexts[tuple(window[separator:])], (), (), False))
    assert (len(records), len(contexts), len(set(ids) & set(by_id))) == (100, 4, 92)

    tokenizer = WordPieceTokenizer(shared / "data/vocab/bert-base-uncased.vocab.txt")
    windows = make_windows(questions, tokenizer, WindowOptions())
    assert windows.question_index.tolist() == list(range(100))
    for w, record in enumerate(records):
        tokens = slice(*windows.offsets[w : w + 2])
        length = tokens.stop - tokens.start
        padding = [0] * (384 - length)
        expected = {name: list(record[name].int64_list.value) for name in ("input_ids", "input_mask", "segment_ids")}
        assert windows.word_ids[tokens].tolist() + padding == expected["input_ids"]
        assert [1] * length + padding == expected["input_mask"]
        assert windows.type_ids[tokens].tolist() + padding == expected["segment_ids"]
        assert windows.most_context[tokens].sum() == sum(record["token_is_max_context"].int64_list.value)
