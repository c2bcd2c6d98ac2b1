"""An ALBERT that tags Chinese names, in Java: the spans of Python."""

from __future__ import annotations

import json
from pathlib import Path

import chinese_names
import pytest
from test_java_host import host

import pocketbert as pb

pytestmark = pytest.mark.java

TEXTS = [
    "王敏伟说了书在李芳的",
    "的张娜 来, 刘静强!",
    "🙂陈伟\u3000去了AB王敏",
    "\u2f2d人 书\u00a0说 李芳芳",
    "书" * 30 + "李敏" + "天" * 25 + "王伟静",
    "",
    "书人",
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> pb.Bundle:
    folder = tmp_path_factory.mktemp("albert")
    model = chinese_names.write_run(folder)
    examples = chinese_names.data_of(folder)
    return pb.export(model, folder / "bundle", recipe="dynamic_wi8", lengths=(13, 23), examples=examples)


def test_java_finds_the_names_that_python_finds(bundle: pb.Bundle, tmp_path: Path) -> None:
    chinese_names.write_sentences(tmp_path / "other.conll", 150, 3)
    sentences = (tmp_path / "other.conll").read_text(encoding="utf-8").split("\n\n")
    texts = [*TEXTS, *("".join(line[0] for line in sentence.splitlines()) for sentence in sentences)]
    done = host("answer", bundle.directory, text="".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    names = set()
    for text, answer, expected in zip(texts, answers, bundle.predict(texts), strict=True):
        for one, other in zip(answer["spans"], expected["spans"], strict=True):
            # int8: two releases of the kernels may round a value to another step.
            assert one.pop("probability") == pytest.approx(other.pop("probability"), abs=0.02)
            assert one == other, ascii(text)
            names.add(one["text"])
    # It has learned names, and these are not equal by chance.
    assert {"王敏伟", "李芳", "李敏", "王伟静"} <= names and len(names) > 50
