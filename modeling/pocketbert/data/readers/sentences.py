"""Rule-based sentence splitter.

A sentence ends after `.`, `!`, `?`, `…` or similar characters with closing quotes and brackets, if a space and anything
but a lower-case letter follow. A full stop does not end a sentence after an initial (J. Smith), a title (Dr. Smith), an
abbreviation before a digit (No. 5) or a list number (1. First). After an abbreviation that can end a sentence (U.S.,
Inc., etc.), it does so only before a word that often begins sentences. CJK full stops need no space.

The word lists are English; the other rules apply to all languages. tensorflow-text's StateBasedSentenceBreaker would
split after every `Dr.`, initial and `No.`.
"""

from __future__ import annotations

import re

# Abbreviations that never end a sentence.
_BEFORE_NAMES = frozenset(
    "mr mrs ms messrs dr prof st mt ft rev fr hon gen adm col maj capt cpt cmdr lt sgt cpl pvt gov sen rep pres supt "
    "vs v viz cf ie eg e.g i.e esp approx ca c incl resp transl trans".split()
)
# Abbreviations that do not end a sentence before a digit.
_BEFORE_NUMBERS = frozenset(
    "no nos nr vol vols p pp fig figs ch sec sect art eq ed op r b d jan feb mar apr jun jul aug sep sept oct nov dec "
    "ca approx circa".split()
)
# Abbreviations that end a sentence before `_BEGINS_SENTENCES`; so do those with inner stops, such as U.S. or a.m.
_MAY_STAND_LAST = frozenset("inc ltd co corp bros llc plc jr sr etc al ave blvd rd dept univ assn".split())
_BEGINS_SENTENCES = frozenset(
    "a after all although among an and another as at because before both but by during each for from he her here his "
    "how however if in it its many most no on one other others she since so some such that the their these "
    "then there they this those though three to two under until we what when where which while who with".split()
)
# Look-behind and possessive quantifiers, so that a long run of stops is read only once.
_END = re.compile(
    r"""(?P<cjk>[。！？｡︒]++[」』”’）】》〉]*+)\s*+
      | (?<![.!?…؟۔।॥])(?P<stop>[.!?…؟۔।॥]++)(?P<closing>["'”’»›)\]}]*+)\s++""",
    re.VERBOSE,
)
_OPENING = "\"'“‘«‹([{¿¡-–—"
_LAST_WORD = re.compile(r"[^\s\"'“”‘’()\[\]{}–—/]*$")
_NEXT_WORD = re.compile(r"\w*")
# Characters to check before a full stop; longer than any abbreviation.
_LONGEST_WORD = 24


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph into sentences, none empty. It drops only the space between them.

    Args:
      text: one paragraph; a line break counts as a space.
    """
    sentences = []
    start = 0
    for match in _END.finditer(text):
        if match["cjk"] is None and not _ends_sentence(text, start, match):
            continue
        sentence = text[start : match.end()].strip()
        if sentence:
            sentences.append(sentence)
        start = match.end()
    rest = text[start:].strip()
    return [*sentences, rest] if rest else sentences


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    following = match.end()
    while following < len(text) and text[following] in _OPENING:
        following += 1
    if following == len(text):
        return True
    next_character = text[following]
    if next_character.islower():
        return False
    if match["stop"] != "." or match["closing"]:
        return True
    stop = match.start()
    last_word = _LAST_WORD.search(text, max(start, stop - _LONGEST_WORD), stop)
    word = last_word[0] if last_word else ""
    if not word:
        return True
    lowered = word.lower()
    if lowered in _BEFORE_NAMES or (len(word) == 1 and word.isupper()):
        return False
    if next_character.isdigit() and lowered in _BEFORE_NUMBERS:
        return False
    if word.isdecimal() and not text[start : stop - len(word)].strip():
        return False
    if lowered in _MAY_STAND_LAST or "." in word:
        next_word = _NEXT_WORD.match(text, following)
        return next_word is not None and next_word[0].lower() in _BEGINS_SENTENCES
    return True
