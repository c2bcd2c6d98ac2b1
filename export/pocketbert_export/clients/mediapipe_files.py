"""Write single-length files from a verified bundle, ready for MediaPipe Tasks or the TFLite Task Library.

MediaPipe tokenizes, runs and labels by itself, from TFLite Model Metadata in the file. It reads one subgraph, and shows
the output as a score, so each file has one of the bundle's lengths and computes its scores in the graph. Weights and
operators are the bundle's.

MediaPipe's tokenizer is BERT's for uncased vocabularies, with these differences: it lower-cases ASCII alone, keeps
accents and control characters, treats special tokens as text, and limits words to 100 bytes.
Source: bert_tokenizer.h and bert_preprocessor_calculator.cc in https://github.com/google-ai-edge/mediapipe.

MediaPipe has no client for questions. The Task Library has one, with the same metadata and tokenizer.
Source: bert_question_answerer.cc in https://github.com/tensorflow/tflite-support.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from pocketbert import files
from pocketbert import output_folders as outputs
from pocketbert.configs import TaskConfig
from pocketbert.data.readers.glue import GLUE
from pocketbert.data.readers.xnli import XNLI
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError, raise_if_any
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.tasks.registry import get_task
from pocketbert.tokenizers.bert_unicode import normalized
from pocketbert_export.bundles.bundle import LABELS_FILE, VOCAB_FILE, Bundle
from pocketbert_export.tflite.graph import GraphEditor, keep_signature, read_model, write_model
from pocketbert_export.tflite.model_metadata import TensorDescription, add_metadata, append_files
from pocketbert_export.tflite.op_histogram import count_ops
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import UNK


class MediaPipeClient(NamedTuple):
    """A client and its output.

    Attributes:
      name: class in MediaPipe Tasks.
      output: name of the file's only output.
      description: of the output.
      operator: turns logits into scores in the graph; empty for outputs shown as they are.
    """

    name: Literal["TextClassifier", "TextEmbedder"]
    output: str
    description: str
    operator: Literal["SOFTMAX", "LOGISTIC", ""] = ""


CLIENTS = {
    "classification": MediaPipeClient("TextClassifier", "scores", "Probability of each label.", "SOFTMAX"),
    "multi_label": MediaPipeClient("TextClassifier", "scores", "Probability of each label.", "LOGISTIC"),
    "embedding": MediaPipeClient("TextEmbedder", "embedding", "Vector of the text."),
}
# The Task Library's client for questions. It reads inputs with one length, end before start, and old operators.
QUESTION_CLIENT, QUESTION_LENGTH = "BertQuestionAnswerer", 384
_QUESTION_OUTPUTS: tuple[TensorDescription, ...] = (
    TensorDescription("end_logits", "Logit of each token as the answer's last."),
    TensorDescription("start_logits", "Logit of each token as the answer's first."),
)
# Clients find the inputs by these names.
_INPUTS = {
    "input_word_ids": TensorDescription("ids", "Token ids: [CLS], tokens, [SEP], padding."),
    "input_type_ids": TensorDescription("segment_ids", "0 for each token."),
    "input_mask": TensorDescription("mask", "1 for tokens, 0 for padding."),
}
# Punctuation and CJK characters, each a word (`kDefaultDelimRe`).
_DELIMITERS = (
    r"[!-/]|[:-@]|[\[-`]|[{-~]|[\p{P}]|[\x{4E00}-\x{9FFF}]|[\x{3400}-\x{4DBF}]|[\x{20000}-\x{2A6DF}]|"
    r"[\x{2A700}-\x{2B73F}]|[\x{2B740}-\x{2B81F}]|[\x{2B820}-\x{2CEAF}]|[\x{F900}-\x{FAFF}]|[\x{2F800}-\x{2FA1F}]"
)
# Scores are a function of the same logits, and vectors are the same: float32 rounding of numbers near 1.
TOLERANCE = 1e-5


def check_client(task: TaskConfig | None, vocabulary: Vocabulary | None, *, has_pairs: bool) -> None:
    """Checks that MediaPipe has a client for a model.

    Args:
      task: the model's task; None for a bare encoder. GLUE's tasks and XNLI are known by name.
      vocabulary: the model's tokenizer files and options; None if unknown.
      has_pairs: whether the model's examples are pairs; embeddings take a pair's texts one by one.
    Raises:
      UserError: lists all reasons why MediaPipe cannot run the model as we do.
    """
    problems = _tokenizer_problems(vocabulary)
    if task is None or task.kind not in CLIENTS:
        kind = "a bare encoder" if task is None else task.kind
        problems.append(f"MediaPipe must have a client for the task, one of {', '.join(CLIENTS)}; received {kind}")
    elif not get_task(task).has_vectors and (
        has_pairs or task.name == XNLI.name or (task.name in GLUE and GLUE[task.name].pair_column)
    ):
        name = f" ({task.name})" if task.name else ""
        problems.append(f"{CLIENTS[task.kind].name} takes one text; received a task on pairs of texts{name}")
    _raise(problems)


def check_files(
    task: TaskConfig | None, vocabulary: Vocabulary | None, lengths: Sequence[int], *, has_pairs: bool
) -> None:
    """Checks that MediaPipe or the Task Library has a client for a model; a `UserError` lists all problems."""
    if not _asks(task):
        return check_client(task, vocabulary, has_pairs=has_pairs)
    problems = _tokenizer_problems(vocabulary)
    if QUESTION_LENGTH not in lengths:
        problems.append(
            f"the Task Library's {QUESTION_CLIENT} reads {QUESTION_LENGTH} tokens; received lengths "
            f"{', '.join(map(str, lengths))}; add {QUESTION_LENGTH} to {argument('lengths')}"
        )
    return _raise(problems)


def folder_beside(bundle: str | os.PathLike[str]) -> Path:
    """Returns the folder for a bundle's files: its path with `-mediapipe` at the end."""
    return outputs.beside(bundle, "mediapipe")


def has_pairs(bundle: Bundle) -> bool:
    """Whether a bundle's texts are pairs: the first golden text is one of the user's."""
    return bundle.golden_lines[0].pair is not None


def log_decisions(bundle: Bundle) -> None:
    """Logs a line if the bundle has thresholds for answers, which MediaPipe cannot apply."""
    if bundle.task is not None and bundle.task.decisions is not None:
        log_info(
            "MediaPipe shows all labels with their scores, without the thresholds of the bundle; apply "
            "task.decisions of bundle.json in your app"
        )


def write_task_files(
    bundle: Bundle,
    output: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    overwrite: bool = False,
    group: outputs.Together | None = None,
) -> dict[str, Any]:
    """Writes `length_N.tflite` for each length in a bundle, completely or not at all; for questions, one file.

    Args:
      bundle: the bundle.
      output: output folder.
      texts: your application's texts, to count those that MediaPipe tokenizes differently.
      overwrite: replace an existing folder.
      group: see `pocketbert.output_folders.new_directory`.
    Returns:
      `files`: paths; `texts`: number of texts; `differing`: number tokenized differently by MediaPipe;
      `differing_prepared`: the same after `prepare`.
    Raises:
      UserError: MediaPipe has no client for the bundle, or `output` exists.
    """
    check_files(bundle.task, bundle.vocabulary, bundle.lengths, has_pairs=has_pairs(bundle))
    if bundle.output_type != "float32":
        raise UserError(f"MediaPipe's clients need {argument('output_type', 'float32')}; received {bundle.output_type}")
    lengths = [QUESTION_LENGTH] if _asks(bundle.task) else bundle.lengths
    if _asks(bundle.task) and (needed := count_ops(bundle.model_path).needed_versions):
        raise UserError(
            f"the Task Library's {QUESTION_CLIENT} runs old operators only; received int8 weights that need "
            + ", ".join(f"{name} version {version}" for name, version in needed.items())
            + f"; pass {argument('runtime', 'tflite-2.16')}"
        )
    log_decisions(bundle)
    with outputs.new_directory(output, outputs.MEDIAPIPE_KIND, overwrite=overwrite, group=group) as folder:
        for length in lengths:
            content = task_file(bundle, length)
            files.write_bytes(folder / f"{bundle.signature(length)}.tflite", content)
            _check_output(bundle, content, length)
    differing = sum(differing_tokenizations(bundle, texts))
    prepared = sum(differing_tokenizations(bundle, texts, prepared=True)) if differing else 0
    if differing:
        log_info(
            f"warning: the client tokenizes {differing} of {len(texts)} texts differently than the model, because it "
            f"lower-cases ASCII only and keeps accents; {prepared} differ if your app prepares texts as "
            "docs/how-to/mediapipe.md shows"
        )
    return {
        "files": [os.path.join(output, f"{bundle.signature(length)}.tflite") for length in lengths],
        "texts": len(texts),
        "differing": differing,
        "differing_prepared": prepared,
    }


def task_file(bundle: Bundle, length: int) -> bytes:
    """Returns one length's file content: the bundle's graph with scores, metadata, vocabulary and labels."""
    assert bundle.task is not None
    model = read_model(bundle.model_path.read_bytes())
    signature = keep_signature(model, bundle.signature(length))
    if _asks(bundle.task):
        client_name, described = QUESTION_CLIENT, _QUESTION_OUTPUTS
        indices = {output.name.decode(): output.tensorIndex for output in signature.outputs}
        model.subgraphs[0].outputs = [indices[output.name] for output in described]
    else:
        client = CLIENTS[bundle.task.kind]
        labels_file = LABELS_FILE if bundle.task.labels else ""
        client_name, described = client.name, (TensorDescription(client.output, client.description, labels_file),)
        if client.operator:
            _add_scores(model, signature, client)
    names = {tensor.tensorIndex: tensor.name.decode() for tensor in signature.inputs}
    add_metadata(
        model,
        name=bundle.task.name or bundle.task.kind,
        description=f"PocketBERT, {bundle.recipe}, {length} tokens, for {client_name}.",
        inputs=[_INPUTS[names[index]] for index in model.subgraphs[0].inputs],
        outputs=described,
        vocabulary_file=VOCAB_FILE,
    )
    names_attached = [VOCAB_FILE, *([LABELS_FILE] if bundle.task.labels else [])]
    attached = {name: (bundle.directory / name).read_bytes() for name in names_attached}
    return append_files(write_model(model), attached)


def prepare(text: str) -> str:
    """Changes a text so that MediaPipe tokenizes it as the model does; apps do this before they call MediaPipe.

    Lower-cases all letters, drops accents and control characters, and makes tabs, line ends and each Unicode space a
    space, as BERT's tokenizer does. Literal special tokens, such as `[SEP]`, remain text.
    """
    return normalized(text, lowercase=True)


def differing_tokenizations(bundle: Bundle, texts: Sequence[str], *, prepared: bool = False) -> list[bool]:
    """Whether MediaPipe tokenizes each text differently at the longest length; `prepared` applies `prepare` first."""
    if not texts:
        return []
    expected = bundle.tokenizer(list(texts), max_length=bundle.lengths[-1])
    counts = np.asarray(expected["input_mask"]).sum(axis=1)
    ids = np.asarray(expected["input_word_ids"])
    received = mediapipe_ids(bundle.vocabulary.tokens(), [prepare(text) for text in texts] if prepared else texts)
    # Without [CLS] and [SEP].
    return [
        row[1 : count - 1].tolist() != other[: bundle.lengths[-1] - 2]
        for row, count, other in zip(ids, counts, received, strict=True)
    ]


def mediapipe_ids(tokens: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
    """Computes MediaPipe's token ids, without special tokens and truncation; tensorflow-text has the same code."""
    import tensorflow_text as tf_text

    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(list(tokens), tf.range(len(tokens), dtype=tf.int64)), tokens.index(UNK)
    )
    word_pieces = tf_text.WordpieceTokenizer(table, token_out_type=tf.int64, unknown_token=UNK)
    # Without an encoding, `lower` changes ASCII bytes only, as absl::AsciiStrToLower does.
    lowered = tf.strings.lower([text.encode("utf-8", "replace") for text in texts])
    # Not tensorflow-text's BasicTokenizer, which drops control characters first.
    words = tf_text.regex_split(lowered, rf"(\s+|{_DELIMITERS})", rf"({_DELIMITERS})")
    return word_pieces.tokenize(words).merge_dims(1, 2).to_list()


def client_output(bundle: Bundle, answers: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns MediaPipe's answers for a bundle's outputs: scores `[N, labels]` or vectors `[N, D]`, float64."""
    assert bundle.task is not None
    operator = CLIENTS[bundle.task.kind].operator
    (output,) = (np.asarray(answers[name], np.float64) for name in bundle.output_names)
    if not operator:
        return output
    return (tf.nn.softmax if operator == "SOFTMAX" else tf.math.sigmoid)(output).numpy()


def _add_scores(model: schema.ModelT, signature: schema.SignatureDefT, client: MediaPipeClient) -> None:
    """Appends the operator to the graph's only output."""
    graph, editor = model.subgraphs[0], GraphEditor(model)
    (logits,) = graph.outputs
    scores = editor.tensor(graph, client.output.encode(), schema.TensorType.FLOAT32, graph.tensors[logits].shape)
    options = None
    if client.operator == "SOFTMAX":
        options = schema.SoftmaxOptionsT()
        options.beta = 1.0
    graph.operators.append(editor.operator(client.operator, [logits], [scores], options))
    graph.outputs = [scores]
    (output,) = signature.outputs
    output.name, output.tensorIndex = client.output.encode(), scores


def _check_output(bundle: Bundle, content: bytes, length: int) -> None:
    """Runs the file on the golden examples: its output must follow from the bundle's."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_content=content, num_threads=1).get_signature_runner(bundle.signature(length))
    for golden in bundle.goldens:
        if golden.length == length:
            answers = runner(**{name: golden.inputs[name] for name in INPUT_NAMES})
            expected = golden.exported_outputs
            if not _asks(bundle.task):
                expected = dict.fromkeys(answers, client_output(bundle, expected))
            worst = max(float(np.abs(answers[name] - expected[name]).max()) for name in answers)
            if not worst <= TOLERANCE:
                raise RuntimeError(f"the file for {length} tokens differs from the bundle by {worst}")


def _asks(task: TaskConfig | None) -> bool:
    """Whether the Task Library's client is for this task."""
    return task is not None and task.rules.reads == "questions"


def _tokenizer_problems(vocabulary: Vocabulary | None) -> list[str]:
    if vocabulary is not None and not vocabulary.rules.has_options:
        return [f"the client needs a WordPiece tokenizer; received {vocabulary.kind} ({vocabulary.path.name})"]
    if vocabulary is not None and not vocabulary.options.lowercase:
        return ["the client lower-cases all texts; received a cased model"]
    if vocabulary is not None and vocabulary.added:
        return [f"the client splits added tokens; received a model with {vocabulary.added[0].content!r}"]
    if vocabulary is not None and vocabulary.truncation != HEAD:
        return [f"the client cuts the ends of texts (truncation=head); received a model with {vocabulary.truncation}"]
    return []


def _option() -> str:
    return argument("mediapipe", python="MediaPipe")


def _raise(problems: list[str]) -> None:
    raise_if_any([*problems, f"leave {_option()} out"] if problems else [], _option())
