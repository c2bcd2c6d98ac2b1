"""Sentences of a paragraph, by rules that need no model.

A sentence ends behind `.`, `!`, `?`, `…` or their like, with the quotes and brackets that close there, if a space
follows and then something that can begin a sentence: anything but a lower-case letter. A full stop does not end one
behind an initial (J. Smith), a title (Dr. Smith), a number's or a month's abbreviation in front of a digit (No. 5), or
the number of a list (1. First); behind an abbreviation that may stand last (U.S., Inc., etc.) it does only in front of
a word that often begins sentences. CJK full stops need no space.

The word lists are English; elsewhere the other rules hold. tensorflow-text's StateBasedSentenceBreaker, the one
splitter among this project's packages, cuts behind every `Dr.`, initial and `No.`.
"""

from __future__ import annotations

import re

# What is never the end of a sentence.
_BEFORE_NAMES = frozenset(
    "mr mrs ms messrs dr prof st mt ft rev fr hon gen adm col maj capt cpt cmdr lt sgt cpl pvt gov sen rep pres supt "
    "vs v viz cf ie eg e.g i.e esp approx ca c incl resp transl trans".split()
)
# What is not if a digit follows.
_BEFORE_NUMBERS = frozenset(
    "no nos nr vol vols p pp fig figs ch sec sect art eq ed op r b d jan feb mar apr jun jul aug sep sept oct nov dec "
    "ca approx circa".split()
)
# What may be, if the next word is one that begins sentences; so may all with inner stops, such as U.S. or a.m.
_MAY_STAND_LAST = frozenset("inc ltd co corp bros llc plc jr sr etc al ave blvd rd dept univ assn".split())
_BEGINS_SENTENCES = frozenset(
    "a after all although among an and another as at because before both but by during each for from he her here his "
    "how however if in it its many most no on one other others she since so some such that the their these "
    "then there they this those though three to two under until we what when where which while who with".split()
)
# Looking behind and possessive, so that a long run of stops is read once and not once from each of its places.
_END = re.compile(
    r"""(?P<cjk>[。！？｡︒]++[」』”’）】》〉]*+)\s*+
      | (?<![.!?…؟۔।॥])(?P<stop>[.!?…؟۔।॥]++)(?P<closing>["'”’»›)\]}]*+)\s++""",
    re.VERBOSE,
)
_OPENING = "\"'“‘«‹([{¿¡-–—"
_LAST_WORD = re.compile(r"[^\s\"'“”‘’()\[\]{}–—/]*$")
_NEXT_WORD = re.compile(r"\w*")
# Longer than any abbreviation: what is looked at in front of a full stop.
_LONGEST_WORD = 24


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph, in order, without the space between them; nothing else is left out.

    Args:
      text: one paragraph; a line break is a space.
    Returns:
      Sentences, none empty; none for a text without characters but spaces.
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
    found = _LAST_WORD.search(text, max(start, stop - _LONGEST_WORD), stop)
    word = found[0] if found else ""
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
