"""Names in running text as CoNLL files: labelled spans made from plain text, without annotators.

English capitalizes names, and an uncased network does not see capitals. So the capitals of a text are exact labels:
`NAME` for a run of capitalized words, `ACRONYM` for a word of at least two capitals. To find them in lower-cased text
is truecasing (Lita et al. 2003, "tRuEcasIng", ACL). The first word of a sentence is capitalized in any case; it is a
name if the word is mostly capitalized elsewhere in the text. The pronoun "I" is not.

Run it with `python -m studies.names_corpus TEXT FOLDER`; TEXT is a file that `pocketbert pretrain-data` reads.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections import Counter
from pathlib import Path

from pocketbert.data.readers.sentences import split_sentences
from pocketbert.data.readers.text import read_documents
from pocketbert_runtime.answers.tags import WordSpan, iob2
from pocketbert_runtime.answers.words import split_words

LABELS = ("ACRONYM", "NAME")
_SHORTEST, _LONGEST = 5, 60
# Sentences of equal text go to the same file.
_DEV_PART = 10


def write_corpus(source: Path, folder: Path, documents: int = 100) -> tuple[Path, Path]:
    """Writes `train.conll` and `dev.conll`, a tenth.

    Args:
      source: the text; see `pocketbert.data.readers.text.read_documents`.
      folder: existing folder for the files.
      documents: number of documents to take from the beginning.

    Returns:
      Both paths.
    """
    taken = itertools.islice(read_documents(source), documents)
    sentences = [
        [sentence[start:end] for start, end in split_words(sentence)]
        for document in taken
        for paragraph in document.paragraphs
        for sentence in split_sentences(paragraph)
    ]
    sentences = [words for words in sentences if _SHORTEST <= len(words) <= _LONGEST and words[-1] in ".?!"]
    inside = Counter(word for words in sentences for word in words[1:])
    parts: dict[str, list[str]] = {"train": [], "dev": []}
    for words in sentences:
        tags = iob2(list(name_spans(words, inside)), len(words))
        part = "train" if hashlib.sha256(" ".join(words).encode()).digest()[0] % _DEV_PART else "dev"
        parts[part].append("".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)))
    paths = {part: folder / f"{part}.conll" for part in parts}
    for part, path in paths.items():
        path.write_text("\n".join(parts[part]), encoding="utf-8")
    return paths["train"], paths["dev"]


def name_spans(words: list[str], inside: Counter[str]) -> list[WordSpan]:
    """Finds names and abbreviations in a sentence by their capital letters.

    `inside` counts the words that are not the first of their sentence: it decides whether the first word is a name.
    """
    kinds = [_kind(word) for word in words]
    if kinds[0] == "NAME" and inside[words[0]] <= inside[words[0].lower()]:
        kinds[0] = ""
    spans = []
    first = 0
    for kind, group in itertools.groupby(kinds):
        count = len(list(group))
        if kind == "NAME":
            spans.append(WordSpan(first, first + count - 1, kind))
        elif kind:
            spans += [WordSpan(word, word, kind) for word in range(first, first + count)]
        first += count
    return spans


def _kind(word: str) -> str:
    if not word.isalpha() or word == "I":
        return ""
    if word.isupper() and len(word) > 1:
        return "ACRONYM"
    return "NAME" if word[0].isupper() else ""


if __name__ == "__main__":
    for _path in write_corpus(Path(sys.argv[1]), Path(sys.argv[2])):
        print(_path)
