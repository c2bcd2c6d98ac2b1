"""A small valid file or folder for each reader of the package, and what reads it."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sample_models
import sample_tokenizers


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What reads a file or folder.

    Attributes:
      make: writes a valid one in an empty folder, and returns what `read` takes.
      read: reads all of it.
      sign: makes the digests of a folder true again.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    sign: Callable[[Path], object] | None = None


def _file(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def _folder(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        _file(name, content)(folder)
        return folder

    return make


ROWS = [("text", "label"), ("a good film", "yes"), ("Ä “bad” film", "no"), ("12, 3", "yes"), ("so so", "no")]
TABLE_CSV = io.StringIO()
csv.writer(TABLE_CSV).writerows(ROWS)
TABLE_TSV = "".join("\t".join(row) + "\n" for row in ROWS)
TABLE_JSONL = "".join(json.dumps({"text": text, "label": label, "n": 1.5}) + "\n" for text, label in ROWS[1:])
_CONTEXT = "Ada wrote the first \\ program in 1843."
_QUESTIONS = [
    {"id": str(number), "question": "When?", "answers": [{"text": "1843", "answer_start": 33}], "is_impossible": False}
    for number in range(3)
]
SQUAD = json.dumps({"version": "1", "data": [{"title": "t", "paragraphs": [{"context": _CONTEXT, "qas": _QUESTIONS}]}]})
HUGGING_FACE = "".join(
    json.dumps({"id": str(n), "context": _CONTEXT, "question": "Who?", "answers": {"text": [t], "answer_start": [s]}})
    + "\n"
    for n, (t, s) in enumerate((("Ada", 0), ("1843", 33)))
)
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\tone\ttwo\n0\t4\t5\tthree\tfour\n"
STSB = "index\tsentence1\tsentence2\tscore\n0\ta\tb\t3.5\n1\tc\td\t0.25\n"
XNLI = "language\tgold_label\tsentence1\tsentence2\nen\tneutral\ta\tb\nde\tentailment\tc\td\n"
PLAIN = "First paragraph.\nSecond one.\n\nAnother document,\nwith 2 lines.\n"
WIKI = '<doc id="1" url="u" title="T &amp; U">\nT & U\n\nA paragraph.\n</doc>\n'
WIKI += '<doc id="2" url="v" title="V">\nV\n\nB.\n</doc>\n'
TEXT_JSONL = '{"title": "T", "text": "A paragraph.\\nAnother."}\n{"text": "B\\u00e9."}\n'
GOLDEN_ANSWERS = (
    '{"text":"Bé 🙂","windows":[{"ids":[2,7,3],"type_ids":[0,0,0],"offsets":[[0,0],[0,2],[0,0]]}],'
    '"answer":{"label":null,"probabilities":{"a":0.25,"b":0.75}}}\n'
    '{"question":"B","context":"","windows":[{"ids":[2,3],"offsets":[[0,0],[0,0]]}],"answer":{"answer":""}}\n'
)
GLOVE = "the 0.1 -0.2 3e-2\nof 1 2 3\n, 0.5 0.25 -1\nnaïve 1.5 0 0\n"


HEADS = (
    '{"text": "Ada met Bob", "mood": "a", "slots": "B-PER O B-PER"}\n'
    '{"text": "in York", "mood": "b", "slots": [{"start": 3, "end": 7, "label": "LOC"}]}\n'
)
CONLL = "EU NNP B-NP B-ORG\nU.N. NNP I-NP I-ORG\n\nBonn NNP B-NP B-LOC\n. . O O\n"
SPANS = '{"text": "Ada \U0001f642 met Bo.", "spans": [[0, 3, "PER"], {"start": 10, "end": 12, "label": "PER"}]}\n' * 3


def _heads(path: Path) -> object:
    from pocketbert.data.head_tables import heads

    return heads(path, {"mood": "classification", "slots": "token_classification"}, dev=path)


def _tagged(path: Path) -> object:
    from pocketbert.data.readers.tagged_texts import read_tagged

    return read_tagged(path)


def _table(path: Path) -> object:
    from pocketbert.data.readers.tables import read_table

    return read_table(path, text_column="text", label_column="label")


def _questions(path: Path) -> object:
    from pocketbert.data.readers.question_tasks import is_question_file
    from pocketbert.data.readers.questions import QuestionFile

    is_question_file(str(path))
    return list(QuestionFile(path))


def _vocabulary(path: Path) -> object:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(path).tokenize(sample_tokenizers.TEXTS)


def _glue(task: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        from pocketbert.data.readers.glue import read_glue

        return read_glue(task, path, "dev")

    return read


def _xnli(path: Path) -> object:
    from pocketbert.data.readers.xnli import read_xnli

    return read_xnli(path, "dev")


def _text(path: Path) -> object:
    from pocketbert.data.readers.text import read_documents

    return list(read_documents(path))


def _glove(path: Path) -> object:
    from pocketbert.augmentation.glove import read_glove

    return read_glove(path).neighbours(["the"], 2)


def _make_pretraining(folder: Path) -> Path:
    import tiny_pretraining

    return tiny_pretraining.write_data(folder / "data", documents=6)


def _pretraining(path: Path) -> object:
    from pocketbert.data.pretraining.reader import PretrainingData

    data = PretrainingData.open(path)
    return data.records(np.arange(len(data)))


def sign_pretraining(folder: Path) -> None:
    """The files' sizes and digests; the manifest's own is over what its reader makes of it."""
    from pocketbert.data.pretraining import manifest as pretraining_manifest
    from pocketbert_runtime.json_reading import from_json

    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    for entry in (
        content["vocabulary"],
        *(shard[part] for shard in content["shards"] for part in ("records", "sizes")),
    ):
        file = (folder / entry["name"]).read_bytes()
        entry |= {"size_bytes": len(file), "sha256": hashlib.sha256(file).hexdigest()}
    fields = {name: content[name] for name in content if name not in ("format", "version", "identity", "report")}
    content["identity"] = from_json(pretraining_manifest.PretrainingManifest, fields, "").identity
    path.write_text(json.dumps(content), "utf-8")


def _make_store(folder: Path) -> Path:
    import teacher_caches

    with teacher_caches.writer(folder / "first") as store:
        teacher_caches.fill(store)
    return folder / "first"


def _make_kept_store(folder: Path) -> Path:
    import teacher_caches

    return teacher_caches.write_kept(folder / "first")


def _store(path: Path) -> object:
    from pocketbert.data.teacher_cache.reader import TeacherCache

    store = TeacherCache.open(path)
    return store.read(np.arange(len(store)), int(store.lengths.max()))


def _sign_store(folder: Path) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    content.pop("manifest_sha256", None)
    optional = [content["candidates"]] if "candidates" in content else []
    for entry in (content["lengths"], content["vocabulary"], *optional, *content["shards"]):
        file = (folder / entry["name"]).read_bytes()
        entry |= {"size_bytes": len(file), "sha256": hashlib.sha256(file).hexdigest()}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content | {"manifest_sha256": digest}), "utf-8")


def _make_model(folder: Path) -> Path:
    import tiny_finetuning

    return tiny_finetuning.write_model(folder / "model")


def _directory(path: Path) -> object:
    from pocketbert.checkpoints.directory import read_directory
    from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_vocabulary

    directory = read_directory(path)
    return directory.vocab_path and read_vocabulary(directory.vocab_path)


def _make_bundle(folder: Path) -> Path:
    import handmade

    return handmade.write_bundle(folder / "bundle", handmade.Bag())


def _bundle(path: Path) -> object:
    from pocketbert_export.bundles.bundle import Bundle

    return Bundle.open(path).goldens


def _make_zipped_bundle(folder: Path) -> Path:
    from bundle_folders import zipped

    return zipped(_make_bundle(folder), folder / "bundle.zip", "films/")


def _runtime_bundle(path: Path) -> object:
    from pocketbert_runtime import Bundle

    bundle = Bundle.open(path)
    return bundle.lengths, bundle.vocabulary.tokens()


def _golden_lines(path: Path) -> object:
    from pocketbert_runtime.bundles.golden_answers import read_lines

    return read_lines(path.read_bytes(), path)


def _sign_bundle(folder: Path) -> None:
    import bundle_folders

    bundle_folders.describe_again(folder)


def _result(path: Path) -> object:
    from pocketbert_bench import results

    return results.read(path)


def _make_result(folder: Path) -> Path:
    committed = Path(__file__).parents[2] / "benchmarks" / "studies" / "results" / "tinybert" / "masked_lm.json"
    return _file("result.json", committed.read_bytes())(folder)


def _make_checkpoint(folder: Path) -> Path:
    import tensorflow as tf

    from pocketbert.training.state import TrainState, write_checkpoint

    position = TrainState(step=5, best_metrics={"accuracy": 0.5}, losses=[[1.0, 2.0]], past=[{"step": 3}])
    path = folder / "checkpoint.safetensors"
    write_checkpoint(path, {"encoder.w": tf.Variable(np.arange(6.0).reshape(2, 3))}, position)
    return path


def _checkpoint(path: Path) -> object:
    from pocketbert.training.state import read_arrays, read_state

    return read_state(path), read_arrays(path, "")


def _make_position(folder: Path) -> Path:
    from pocketbert.training.state import TrainState

    position = TrainState(step=5, best_metrics={"accuracy": 0.5}, losses=[[1.0, 2.0]], past=[{"step": 3}])
    return _file("position.json", json.dumps(dataclasses.asdict(position)))(folder)


def _position(path: Path) -> object:
    from pocketbert.training.state import TrainState
    from pocketbert_runtime.json_reading import from_json, read_json

    return from_json(TrainState, read_json(path), str(path))


def _record(path: Path) -> object:
    from pocketbert.training.run_folder import read_record

    return read_record(path)


def _predict_lines(path: Path) -> object:
    from pocketbert_export.commands.predict import read_rows

    with path.open(encoding="utf-8") as stream:
        return list(read_rows(stream, "auto", str(path)))


READERS: dict[str, Reader] = {
    "csv": Reader(make=_file("t.csv", TABLE_CSV.getvalue()), read=_table),
    "tsv": Reader(make=_file("t.tsv", TABLE_TSV), read=_table),
    "jsonl": Reader(make=_file("t.jsonl", TABLE_JSONL), read=_table),
    "conll": Reader(make=_file("t.conll", CONLL), read=_tagged),
    "spans": Reader(make=_file("s.jsonl", SPANS), read=_tagged),
    "heads": Reader(make=_file("h.jsonl", HEADS), read=_heads),
    "squad": Reader(make=_file("q.json", SQUAD), read=_questions),
    "hugging-face-questions": Reader(make=_file("q.jsonl", HUGGING_FACE), read=_questions),
    "mrpc": Reader(make=_folder("MRPC/dev.tsv", MRPC), read=_glue("mrpc")),
    "stsb": Reader(make=_folder("STS-B/dev.tsv", STSB), read=_glue("stsb")),
    "cola": Reader(make=_folder("CoLA/dev.tsv", "gj04\t1\t\tA sentence.\ngj04\t0\t*\tB\n"), read=_glue("cola")),
    "xnli": Reader(make=_folder("xnli.dev.tsv", XNLI), read=_xnli),
    "plain-text": Reader(make=_file("t.txt", PLAIN), read=_text),
    "wikiextractor": Reader(make=_file("wiki_00", WIKI), read=_text),
    "text-jsonl": Reader(make=_file("t.jsonl", TEXT_JSONL), read=_text),
    "gzipped-text": Reader(make=_file("t.gz", gzip.compress(PLAIN.encode(), mtime=0)), read=_text),
    "glove": Reader(make=_file("glove.txt", GLOVE), read=_glove),
    "gzipped-glove": Reader(make=_file("glove.gz", gzip.compress(GLOVE.encode(), mtime=0)), read=_glove),
    "predict-lines": Reader(make=_file("lines.jsonl", TABLE_JSONL), read=_predict_lines),
    "pretraining-data": Reader(make=_make_pretraining, read=_pretraining),
    "signed-pretraining-data": Reader(make=_make_pretraining, read=_pretraining, sign=sign_pretraining),
    "teacher-store": Reader(make=_make_store, read=_store),
    "signed-teacher-store": Reader(make=_make_store, read=_store, sign=_sign_store),
    "signed-kept-tokens-store": Reader(make=_make_kept_store, read=_store, sign=_sign_store),
    "model-directory": Reader(make=_make_model, read=_directory),
    "bundle": Reader(make=_make_bundle, read=_bundle),
    "signed-bundle": Reader(make=_make_bundle, read=_bundle, sign=_sign_bundle),
    "zipped-bundle": Reader(make=_make_zipped_bundle, read=_runtime_bundle),
    "golden-answers": Reader(make=_file("answers.jsonl", GOLDEN_ANSWERS), read=_golden_lines),
    "checkpoint": Reader(make=_make_checkpoint, read=_checkpoint),
    "signed-position": Reader(make=_make_position, read=_position),
    "run-record": Reader(make=_file("run.json", '{"seed": 1, "options": {"epochs": 3}}'), read=_record),
    "result": Reader(make=_make_result, read=_result),
    "vocabulary": Reader(make=_file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n"), read=_vocabulary),
    **{
        name: Reader(make=make, read=read, sign=_sign_bundle if name == "card" else None)
        for name, (make, read) in sample_models.SAMPLES.items()
    },
}
