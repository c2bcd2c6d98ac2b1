"""SQuAD preprocessing to windows, against three other programs, on one machine in one process.

    python -m studies against_transformers/question_windows [--quick]

Each side goes from the path of a JSON file to windows in memory, on one thread: 384 tokens, a stride of 128, training
positions, BERT's uncased vocabulary. The file is the shared part of SQuAD 1.1 with the first answer of each question,
as the baselines require. Rounds alternate, in alternating order; a ratio is the median of the rounds' ratios. Windows
are compared before timing. Ids and segments must equal tf-models-official's, and so must positions, unless a label
begins or ends within a word and ours are narrower. Ids must equal those of transformers' Python featurizer. The fast
recipe's ids must agree in the first window of each question, because its stride is the overlap of windows instead of
their distance.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.errors import UserError
from pocketbert_bench import results
from studies.shared_data import shared_data

MAX_LENGTH, STRIDE, MAX_QUESTION_TOKENS = 384, 128, 64
ROUNDS, QUICK_ROUNDS = 7, 3
# Every eighth question.
QUICK_STEP = 8
TARGET = 5.0
# The libraries read these on first use.
ONE_THREAD = {
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}
_EXAMPLES_A_CALL = 1000


def run(quick: bool) -> dict[str, Any]:
    """Times all four sides in questions per second, if `quick` with an eighth of the questions in three rounds.

    Raises:
      UserError: the data or transformers are missing.
    """
    vocabulary = shared_data("vocab/bert-base-uncased.vocab.txt")
    os.environ.update(ONE_THREAD)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one_answer.json"
        questions = _write_questions(path, QUICK_STEP if quick else 1)
        ours = _ours(path, vocabulary)
        peers = {
            "transformers, Python": _transformers(path, vocabulary),
            "tf-models-official": _official(path, vocabulary),
            "transformers, fast recipe": _transformers_fast(path, vocabulary),
        }
        count, narrower = _compare(ours, peers)
        sides = {"ours": ours, **peers}
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(QUICK_ROUNDS if quick else ROUNDS):
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                start = time.perf_counter()
                sides[side]()
                rates[side].append(questions / (time.perf_counter() - start))
    ratios = [
        results.ratio(
            name=f"question windows, {peer}",
            description="questions a second, from a JSON file to windows of 384 tokens with training positions",
            ours="pocketbert",
            peer=peer,
            unit="questions/s",
            ours_samples=rates["ours"],
            peer_samples=rates[peer],
            better="higher",
            target=None if "fast" in peer else TARGET,
        )
        for peer in peers
    ]
    notes = [
        f"{questions} questions of SQuAD 1.1 in {count} windows, one thread each; ids and segments equal "
        f"tf-models-official's in every window, positions in all but {narrower}, whose labels begin or end within a "
        "word and are narrower here; ids equal those of transformers' Python featurizer",
        "transformers' fast recipe is that of its run_qa.py: its stride is the overlap, so long paragraphs have "
        "fewer windows; it gives lists without the maximum context",
    ]
    return results.to_json(results.result_file("question_windows", quick=quick, ratios=ratios, notes=notes))


def _write_questions(path: Path, step: int) -> int:
    """Every `step`th question with its first answer."""
    from pocketbert.data.readers.questions import QuestionFile

    file = QuestionFile(shared_data("squad/train-v1.1.json"))
    paragraphs: dict[str, list[dict[str, Any]]] = {}
    chosen = file.select(range(0, len(file), step))
    for each in chosen:
        answers = [{"text": each.answers[0], "answer_start": each.starts[0]}]
        paragraphs.setdefault(each.context, []).append({"id": each.id, "question": each.question, "answers": answers})
    content = [{"context": context, "qas": entries} for context, entries in paragraphs.items()]
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": content}]}), encoding="utf-8")
    return len(chosen)


def _ours(path: Path, vocabulary: Path) -> Callable[[], list[Any]]:
    from pocketbert.data.readers.questions import QuestionFile
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
    from pocketbert_runtime.windows import WindowOptions, stream_windows

    tokenizer = WordPieceTokenizer(vocabulary)
    options = WindowOptions(max_length=MAX_LENGTH, stride=STRIDE, max_question_tokens=MAX_QUESTION_TOKENS)
    return lambda: list(stream_windows(QuestionFile(path), tokenizer, options))


def _transformers(path: Path, vocabulary: Path) -> Callable[[], list[Any]]:
    try:
        from transformers import BertTokenizer
        from transformers.data.processors import squad
    except ImportError as error:
        raise UserError(f"the baseline is transformers; received: {error}; install the test extra") from error
    tokenizer = BertTokenizer(str(vocabulary), do_lower_case=True)

    def features() -> list[Any]:
        examples = squad.SquadV1Processor().get_train_examples(str(path.parent), path.name)
        # The work of `squad_convert_examples_to_features`' processes, without the processes.
        squad.squad_convert_example_to_features_init(tokenizer)
        return [
            squad.squad_convert_example_to_features(
                example, MAX_LENGTH, STRIDE, MAX_QUESTION_TOKENS, "max_length", is_training=True
            )
            for example in examples
        ]

    return features


def _official(path: Path, vocabulary: Path) -> Callable[[], list[Any]]:
    from official.nlp.data import squad_lib
    from official.nlp.tools import tokenization

    tokenizer = tokenization.FullTokenizer(vocab_file=str(vocabulary), do_lower_case=True)

    def features() -> list[Any]:
        features: list[Any] = []
        squad_lib.convert_examples_to_features(
            squad_lib.read_squad_examples(str(path), is_training=True, version_2_with_negative=False),
            tokenizer,
            MAX_LENGTH,
            STRIDE,
            MAX_QUESTION_TOKENS,
            is_training=True,
            output_fn=features.append,
        )
        return features

    return features


def _transformers_fast(path: Path, vocabulary: Path) -> Callable[[], list[Any]]:
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(str(vocabulary), do_lower_case=True)

    def features() -> list[Any]:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            (entry["question"].lstrip(), paragraph["context"], entry["answers"][0])
            for article in content["data"]
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
        return [
            _fast_recipe(tokenizer, rows[start : start + _EXAMPLES_A_CALL])
            for start in range(0, len(rows), _EXAMPLES_A_CALL)
        ]

    return features


def _fast_recipe(tokenizer: Any, rows: list[tuple[str, str, dict[str, Any]]]) -> dict[str, list[Any]]:
    """The steps of `prepare_train_features` in transformers' `run_qa.py`."""
    questions, contexts, answers = zip(*rows, strict=True)
    encoded = tokenizer(
        list(questions),
        list(contexts),
        truncation="only_second",
        max_length=MAX_LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
    )
    positions = []
    for window, offsets in enumerate(encoded["offset_mapping"]):
        answer = answers[encoded["overflow_to_sample_mapping"][window]]
        begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
        sequences = encoded.sequence_ids(window)
        first = sequences.index(1)
        last = len(sequences) - 1 - sequences[::-1].index(1)
        if offsets[first][0] > begin or offsets[last][1] < end:
            positions.append((0, 0))
            continue
        while first < len(offsets) and offsets[first][0] <= begin:
            first += 1
        while offsets[last][1] >= end:
            last -= 1
        positions.append((first - 1, last + 1))
    return {"input_ids": encoded["input_ids"], "positions": positions, "of": encoded["overflow_to_sample_mapping"]}


def _compare(ours: Callable[[], list[Any]], peers: dict[str, Callable[[], list[Any]]]) -> tuple[int, int]:
    """Checks and counts windows, and those with narrower positions than tf-models-official's; also the warm-up."""
    windows = list(_rows(ours()))
    narrower = 0
    for (_, ids, segments, (first, last)), theirs in zip(windows, peers["tf-models-official"](), strict=True):
        is_inside = theirs.start_position <= first <= last <= theirs.end_position
        if (ids, segments) != (theirs.input_ids, theirs.segment_ids) or not is_inside:
            raise AssertionError("our windows must equal tf-models-official's for a comparison; they differ")
        narrower += (first, last) != (theirs.start_position, theirs.end_position)
    slow = [feature.input_ids for features in peers["transformers, Python"]() for feature in features]
    if [ids for _, ids, *_ in windows] != slow:
        raise AssertionError("our windows must equal transformers' for a comparison; they differ")
    batches = peers["transformers, fast recipe"]()
    recipe = [
        (batch * _EXAMPLES_A_CALL + of, ids)
        for batch, columns in enumerate(batches)
        for of, ids in zip(columns["of"], columns["input_ids"], strict=True)
    ]
    if _first_of_each(windows) != _first_of_each(recipe):
        raise AssertionError("our first windows must equal those of the fast tokenizer for a comparison; they differ")
    return len(windows), narrower


def _rows(chunks: list[Any]) -> Iterator[tuple[int, list[int], list[int], list[int]]]:
    """Question, padded ids, padded segments and positions of our windows."""
    before = 0
    for questions, windows in chunks:
        for w, question in enumerate(windows.question_index):
            tokens = slice(*windows.offsets[w : w + 2])
            padding = (0, MAX_LENGTH - (tokens.stop - tokens.start))
            yield (
                before + int(question),
                np.pad(windows.word_ids[tokens], padding).tolist(),
                np.pad(windows.type_ids[tokens], padding).tolist(),
                windows.positions[w].tolist(),
            )
        before += len(questions)


def _first_of_each(rows: list[Any]) -> dict[int, list[int]]:
    first: dict[int, list[int]] = {}
    for row in rows:
        first.setdefault(row[0], row[1])
    return first
