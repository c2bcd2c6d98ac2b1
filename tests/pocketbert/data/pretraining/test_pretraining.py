"""Reading of pretraining examples, compared with the text and the reader of tf-models-official."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pretraining_text
import pytest
import tensorflow as tf
from pretraining_text import CLS, MASK, PAD, SEP

from pocketbert.data.pretraining.options import MaskingOptions
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.errors import UserError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("source")
    return {
        "text": pretraining_text.write_text(root / "text.txt"),
        "vocabulary": pretraining_text.write_vocabulary(root / "vocab.txt"),
    }


@pytest.fixture(scope="module")
def plain(source: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> PretrainingData:
    folder = tmp_path_factory.mktemp("plain") / "data"
    return PretrainingData.open(pretraining_text.make(folder, **source, duplicates=2, dev_every=7))


@pytest.fixture(scope="module")
def baked(source: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> PretrainingData:
    folder = tmp_path_factory.mktemp("baked") / "data"
    masking = MaskingOptions(rate=0.3, max_predictions=5)
    return PretrainingData.open(pretraining_text.make(folder, **source, duplicates=3, masking=masking))


def words_of(data: PretrainingData, example: int) -> dict[str, list[int]]:
    """A record as TensorFlow's own class reads it."""
    (record,) = data.records(np.array([example]))
    features = tf.train.Example.FromString(record).features.feature
    return {
        name: list(feature.int64_list.value) or list(feature.float_list.value) for name, feature in features.items()
    }


def whole_rows(batch: dict[str, Any]) -> list[dict[str, list[int]]]:
    """A batch's rows, their padding cut off."""
    rows = []
    for row, mask in enumerate(np.asarray(batch["input_mask"])):
        count = int(mask.sum())
        assert mask.tolist() == [1] * count + [0] * (len(mask) - count)
        for name, filler in (("input_word_ids", PAD), ("input_type_ids", 0)):
            assert (np.asarray(batch[name])[row, count:] == filler).all()
        rows.append(
            {
                "ids": np.asarray(batch["input_word_ids"])[row, :count].tolist(),
                "types": np.asarray(batch["input_type_ids"])[row, :count].tolist(),
                "positions": np.asarray(batch["masked_lm_positions"])[row].tolist(),
                "labels": np.asarray(batch["masked_lm_labels"])[row].tolist(),
                "next": [int(np.asarray(batch["next_sentence_labels"])[row])],
            }
        )
    return rows


def batches(data: PretrainingData, plan: list[np.ndarray], **options: Any) -> list[dict[str, Any]]:
    return list(data.dataset(plan, **{"seed": 3, "epoch": 1, **options}).as_numpy_iterator())


def check_example(ids: list[int], types: list[int], label: int, document_of: dict[int, int]) -> None:
    """Special tokens, segments and label, by what every word says of its place."""
    middle = ids.index(SEP)
    assert (ids[0], ids[-1], ids.count(SEP), ids.count(CLS), PAD in ids) == (CLS, SEP, 2, 1, False)
    assert types == [0] * (middle + 1) + [1] * (len(ids) - middle - 1)
    first, second = ids[1:middle], ids[middle + 1 : -1]
    for segment in (first, second):
        assert segment and segment == list(range(segment[0], segment[-1] + 1))
        assert len({document_of[word] for word in segment}) == 1
    same = document_of[first[0]] == document_of[second[0]]
    assert same == (label == 0) and (label == 1 or first[-1] < second[0])


@pytest.fixture(scope="module")
def document_of() -> dict[int, int]:
    texts = enumerate(pretraining_text.documents())
    return {word: number for number, document in texts for sentence in document for word in sentence}


def test_records_are_pairs_from_the_text(plain: PretrainingData, document_of: dict[int, int]) -> None:
    shards_documents: list[set[int]] = []
    example = 0
    for entry in plain.manifest.shards:
        masked_sets: dict[int, set[int]] = {}
        for _ in range(entry.counts.examples):
            record = words_of(plain, example)
            ids, first = record["word_ids"], record["first_segment_length"][0]
            assert plain.lengths[example] == len(ids) <= 21
            check_example(ids, [0] * first + [1] * (len(ids) - first), record["next_sentence_labels"][0], document_of)
            masked_sets.setdefault(record["document"][0], set()).add(document_of[ids[1]])
            example += 1
        # A number stands for one document, and both duplicates are of all of them.
        assert sorted(masked_sets) == list(range(entry.counts.documents)) and {
            len(positions) for positions in masked_sets.values()
        } == {1}
        shards_documents.append(set.union(*masked_sets.values()))
    assert example == len(plain) == plain.manifest.counts.examples
    # A file of 61 documents in three parts, of which every seventh is in the dev split.
    for shard, mine in enumerate(shards_documents):
        shard_documents = list(range(shard, pretraining_text.DOCUMENTS, 3))
        assert mine == {document for number, document in enumerate(shard_documents, start=1) if number % 7}
    dev = PretrainingData.open(plain.folder / "dev")
    dev_documents = {document_of[words_of(dev, index)["word_ids"][1]] for index in range(len(dev))}
    assert dev_documents == set(range(pretraining_text.DOCUMENTS)) - set.union(*shards_documents)
    assert len(dev_documents) == 3 + 2 + 2 and dev.identity != plain.identity


def test_a_duplicate_cuts_the_text_anew(plain: PretrainingData) -> None:
    example = 0
    for entry in plain.manifest.shards:
        records = [words_of(plain, example + index) for index in range(entry.counts.examples)]
        example += len(records)
        documents = [record["document"][0] for record in records]
        (second,) = [index for index in range(1, len(records)) if documents[index] < documents[index - 1]]
        one, other = ({tuple(record["word_ids"]) for record in part} for part in (records[:second], records[second:]))
        # Coins, random places and random documents: few pairs come out alike by chance.
        assert len(one & other) < len(one) / 2


def test_counts_match_the_text(plain: PretrainingData) -> None:
    texts = pretraining_text.documents()
    dev = PretrainingData.open(plain.folder / "dev")
    both = [plain.manifest.counts, dev.manifest.counts]
    assert sum(data.documents for data in both) == len(texts)
    assert sum(data.sentences for data in both) == sum(map(len, texts))
    assert sum(data.tokens for data in both) == sum(len(sentence) for document in texts for sentence in document)
    records = [words_of(plain, example) for example in range(len(plain))]
    report = json.loads((plain.folder / "manifest.json").read_text("utf-8"))["report"]
    assert report["random_next"] == sum(record["next_sentence_labels"][0] for record in records)
    assert report["random_next_share"] == pytest.approx(report["random_next"] / len(records), abs=1e-4)
    assert report["mean_length"] == pytest.approx(np.mean([len(record["word_ids"]) for record in records]), abs=0.01)
    assert report["padding_share"] == pytest.approx(1 - report["mean_length"] / 21, abs=1e-3)


def test_batches_are_records_with_masks(plain: PretrainingData) -> None:
    plan = plain.plan(batch_size=6, seed=4, epoch=2)
    assert {row.shape for row in plan} == {(6,)}
    flat = np.concatenate(plan)
    assert len(flat) == len(set(flat.tolist())) == len(plain) // 6 * 6
    kinds = Counter()
    for row, batch in zip(plan, batches(plain, plan), strict=True):
        assert {name: (array.dtype, array.ndim) for name, array in batch.items()} == {
            "input_word_ids": (np.int32, 2),
            "input_mask": (np.int32, 2),
            "input_type_ids": (np.int32, 2),
            "masked_lm_positions": (np.int32, 2),
            "masked_lm_labels": (np.int32, 2),
            "next_sentence_labels": (np.int32, 1),
        }
        # ceil(0.15 * 21), and a multiple of 8 or the whole length.
        assert batch["masked_lm_positions"].shape == (6, 4) and batch["input_mask"].shape[1] in (8, 16, 21)
        for example, whole_row in zip(row, whole_rows(batch), strict=True):
            record = words_of(plain, int(example))
            masked = {
                position: label
                for position, label in zip(whole_row["positions"], whole_row["labels"], strict=True)
                if label > 0
            }
            # BERT's own expression.
            assert len(masked) == min(4, max(1, round(len(whole_row["ids"]) * 0.15)))
            assert [masked.get(position, word) for position, word in enumerate(whole_row["ids"])] == record["word_ids"]
            assert whole_row["next"] == record["next_sentence_labels"]
            assert whole_row["types"].index(1) == record["first_segment_length"][0]
            kinds.update("mask" if whole_row["ids"][position] == MASK else "other" for position in masked)
    # 80 %: five standard deviations of some 700 draws.
    share = kinds["mask"] / kinds.total()
    assert kinds.total() > 500 and abs(share - 0.8) < 5 * np.sqrt(0.16 / kinds.total())


def test_batch_depends_on_row_seed_epoch(plain: PretrainingData) -> None:
    plan = plain.plan(batch_size=6, seed=4, epoch=2)
    everything = batches(plain, plan)
    for mine, others in zip(batches(plain, plan, start=9), everything[9:], strict=True):
        assert all((mine[name] == others[name]).all() for name in others)
    # As two replicas get it, 4 and 2 examples of each row.
    pieces = [piece for row in plan for piece in np.split(row, [4])]
    parts = [row for batch in batches(plain, pieces) for row in whole_rows(batch)]
    assert parts == [row for batch in everything for row in whole_rows(batch)]
    for change in ({"seed": 4}, {"epoch": 2}):
        other = [row["ids"] for batch in batches(plain, plan, **change) for row in whole_rows(batch)]
        assert sum(mine != row["ids"] for mine, row in zip(other, parts, strict=True)) > 0.8 * len(parts)
    assert [row.tolist() for row in plain.plan(batch_size=6, seed=4, epoch=2)] == [row.tolist() for row in plan]
    for change in ({"seed": 5, "epoch": 2}, {"seed": 4, "epoch": 3}):
        assert [row.tolist() for row in plain.plan(batch_size=6, **change)] != [row.tolist() for row in plan]
    assert batches(plain, plan, start=len(plan)) == []
    few = batches(plain, plan[:1], masking=MaskingOptions(max_predictions=2))[0]
    assert few["masked_lm_labels"].shape == (6, 2)
    with pytest.raises(UserError, match=f"a step needs 9999 examples; received {len(plain)};"):
        plain.plan(batch_size=9999, seed=0, epoch=0)


@pytest.mark.nightly
def test_tf_models_official_reads_baked_masks(
    baked: PretrainingData, plain: PretrainingData, document_of: dict[int, int]
) -> None:
    from official.nlp.data.pretrain_dataloader import BertPretrainDataConfig, BertPretrainDataLoader

    config = BertPretrainDataConfig(
        input_path=str(baked.folder / "*.tfrecord"),
        global_batch_size=7,
        is_training=False,
        drop_remainder=False,
        seq_length=21,
        max_predictions_per_seq=5,
        use_v2_feature_names=True,
    )
    expected: list[dict[str, list[int]]] = []
    for batch in BertPretrainDataLoader(config).load().as_numpy_iterator():
        labels = np.where(batch["masked_lm_weights"] > 0, batch["masked_lm_ids"], -1)
        assert batch["next_sentence_labels"].shape[1] == 1
        expected += whole_rows(
            {**batch, "masked_lm_labels": labels, "next_sentence_labels": batch["next_sentence_labels"][:, 0]}
        )
    assert baked.masked and not plain.masked and len(expected) == len(baked) > 200
    in_order = [np.arange(start, min(start + 11, len(baked))) for start in range(0, len(baked), 11)]
    actual = [row for batch in batches(baked, in_order) for row in whole_rows(batch)]
    # Their reader takes the files in an order of its own.
    assert sorted(map(str, actual)) == sorted(map(str, expected))
    # Masks are drawn again for each duplicate, and for equal places of other shards.
    places = Counter()
    for row in actual:
        masked = {position: label for position, label in zip(row["positions"], row["labels"], strict=True) if label > 0}
        assert len(masked) == min(len(row["ids"]) - 3, 5, max(1, round(len(row["ids"]) * 0.3)))
        whole = [masked.get(position, word) for position, word in enumerate(row["ids"])]
        check_example(whole, row["types"], row["next"][0], document_of)
        places[tuple(whole), tuple(masked)] += 1
    assert max(places.values()) <= 2
    firsts = [set(words) for words, _ in places]
    assert len(firsts) > 0.95 * len(actual)
    # In the order of the file, neighbours are not of one document.
    same = [
        document_of[a["ids"][1]] == document_of[b["ids"][1]]
        for a, b in zip(actual, actual[1:], strict=False)
        if MASK not in (a["ids"][1], b["ids"][1])
    ]
    assert np.mean(same) < 0.25
    assert all(
        (mine["masked_lm_labels"] == other["masked_lm_labels"]).all()
        for mine, other in zip(batches(baked, in_order), batches(baked, in_order, seed=9, epoch=9), strict=True)
    )


def test_identity_depends_on_content(plain: PretrainingData, source: dict[str, Path], tmp_path: Path) -> None:
    assert plain.vocab_path.read_bytes() == source["vocabulary"].read_bytes()
    assert (plain.lowercase, plain.pad_token_id, plain.max_length) == (True, PAD, 21)
    moved = Path(shutil.copytree(plain.folder, tmp_path / "moved"))
    assert PretrainingData.open(moved).identity == plain.identity
    other = pretraining_text.make(tmp_path / "other", **source, duplicates=2, dev_every=7, seed=6)
    assert PretrainingData.open(other).identity != plain.identity


def _flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_damaged_folders_are_refused(plain: PretrainingData, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(plain.folder, tmp_path / "data"))
    _flip(folder / "shard-00001-of-00003.tfrecord", 99)
    _flip(folder / "vocab.txt", 3)
    with pytest.raises(UserError, match=r"vocab.txt is damaged .*; shard-00001-of-00003.tfrecord is damaged .* again"):
        PretrainingData.open(folder)
    assert len(PretrainingData.open(folder, verify=False)) == len(plain)
    (folder / "shard-00002-of-00003.npy").unlink()
    (folder / "shard-00000-of-00003.tfrecord").write_bytes(b"short")
    with pytest.raises(UserError, match="00000-of-00003.tfrecord must have .* received 5; .*00002.*npy is missing"):
        PretrainingData.open(folder, verify=False)
    manifest = folder / "manifest.json"
    text = manifest.read_text("utf-8")
    for old, new, message in (
        ('"version": 1', '"version": 2', "version 1; received .*, version 2; make the folder again"),
        ('"documents_left_out": 0', '"documents_left_out": 1', "the manifest is damaged .its SHA-256 differs"),
        ('"shards"', '"shads"', "the manifest is damaged: .*missing: shards; unknown: shads"),
        ("{", "", "this must be JSON"),
    ):
        assert old in text
        manifest.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(UserError, match=message):
            PretrainingData.open(folder)
    manifest.unlink()
    for missing in (folder, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="written last; received .* without one; make or finish it"):
            PretrainingData.open(missing)
