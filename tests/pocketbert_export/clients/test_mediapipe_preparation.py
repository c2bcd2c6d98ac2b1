"""The code that apps run before MediaPipe prepares texts as Python does: Kotlin of the docs, run as Java."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pocketbert_export.clients.mediapipe_files import prepare

ROOT = Path(__file__).parents[3]
# Greek capital and small sigma in all places, marks and signs inside words, capitals with two code points or none in
# lower case, spaces and control characters.
LETTERS = [*"ΣΣΣσςΑαΐΆ'’·:.-A1ßẞİıIÅKΩϴǅÉe", "\u0301", "\u0345", "\u00ad", "\u200b", "\u2028", "\u00a0", *" \t\n", "𝚺𐐀"]
WORDS = [
    "ΟΔΟΣ",
    "Σ",
    "ΣΑΣ. ΣΣ",
    "ΑΣ'Σ",
    "ΑΣ\u0301",
    "Α\u00adΣ",
    "Café in Zürich",
    "İSTANBUL",
    "GROẞE",
    "ΆΣ Σ’ΑΣ\u00a0ΣΟΣ",
]
# Java has no literal for a function that Kotlin passes in braces.
AS_JAVA = {
    "fun prepare(text: String): String {": "static String prepare(String text) {",
    "val lower = StringBuilder()": "StringBuilder lower = new StringBuilder();",
    ".forEach { lower.appendCodePoint(Character.toLowerCase(it)) }": (
        ".forEach(it -> lower.appendCodePoint(Character.toLowerCase(it)));"
    ),
    '.replace(Regex("\\\\p{Mn}"), "")': '.replaceAll("\\\\p{Mn}", "")',
    '.replace(Regex("[\\\\t\\\\n\\\\r\\\\p{Z}]"), " ")': '.replaceAll("[\\\\t\\\\n\\\\r\\\\p{Z}]", " ")',
    '.replace(Regex("[\\\\p{Cc}\\\\p{Cf}\\\\p{Co}\\\\p{Cs}\\\\uFFFD]"), "")': (
        '.replaceAll("[\\\\p{Cc}\\\\p{Cf}\\\\p{Co}\\\\p{Cs}\\\\uFFFD]", "");'
    ),
    "import java.text.Normalizer\n": "",
}
JAVA = """
import java.nio.charset.StandardCharsets;
import java.text.Normalizer;

class Prepare {
%s
    public static void main(String[] none) throws Exception {
        String texts = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        StringBuilder prepared = new StringBuilder();
        for (String text : texts.split("\\0", -1)) {
            prepared.append(prepare(text)).append('\\0');
        }
        System.out.write(prepared.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
"""


def program(name: str) -> str:
    executable = shutil.which(name)
    if executable is None:
        pytest.skip(f"{name} is not installed")
    return executable


def check_program(command: list[str]) -> None:
    generator = np.random.default_rng(0)
    texts = WORDS + ["".join(generator.choice(LETTERS, generator.integers(1, 12))) for _ in range(2000)]
    done = subprocess.run(command, input="\0".join(texts).encode(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    *prepared, end = done.stdout.decode().split("\0")
    assert end == ""
    differing = {
        text: (text_prepared, prepare(text))
        for text, text_prepared in zip(texts, prepared, strict=True)
        if text_prepared != prepare(text)
    }
    assert not differing


def test_kotlin_of_the_page_prepares_as_python_does(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "mediapipe-android.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```kotlin\n([^`]*fun prepare[^`]*)```", page)
    for kotlin, java in AS_JAVA.items():
        assert code.count(kotlin) == 1, kotlin
        code = code.replace(kotlin, java)
    (tmp_path / "Prepare.java").write_text(JAVA % code, encoding="utf-8")
    check_program([program("java"), "-Dfile.encoding=UTF-8", str(tmp_path / "Prepare.java")])


def test_swift_of_the_page_lower_cases_code_points() -> None:
    # Nothing here runs Swift.
    page = (ROOT / "docs" / "how-to" / "mediapipe-ios.md").read_text(encoding="utf-8")
    assert "text.unicodeScalars.map { $0.properties.lowercaseMapping }.joined()" in page and "lowercased()" not in page
