"""English function words: articles, pronouns, prepositions, conjunctions, auxiliaries and parts of contractions."""

from __future__ import annotations

_TEXT = """
a an the this that these those
i me my myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves who whom whose which what
am is are was were be been being have has had having do does did doing will would shall should can could may might must
not no nor and or but if because as until while than so
of at by for with about against between into through during before after above below to from up down in out on off
over under again further then once here there when where why how
all any both each few more most other some such only own same too very just now
s t d ll m re ve o y don isn aren wasn weren hasn haven hadn doesn didn won wouldn shan shouldn couldn mustn mightn
needn ain
"""

STOP_WORDS = frozenset(_TEXT.split())
