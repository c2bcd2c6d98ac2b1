"""Finds replacements for a sentence's words, with a masked-LM model and word vectors."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.augmentation.augmented_rows import AugmentationOptions, Sentence, Slot, WordChoice
from pocketbert.augmentation.glove import WordVectors
from pocketbert.augmentation.mlm_candidates import CONTINUATION, DEFAULT_TOKENS_A_BATCH, MLMCandidates
from pocketbert.augmentation.stop_words import STOP_WORDS
from pocketbert.model import Model

_REMEMBERED = 50_000


@dataclass(frozen=True)
class _Word:
    """A word: its tokens `first:behind`, its offsets `start:end`, and its spelling in the vocabulary."""

    first: int
    behind: int
    start: int
    end: int
    form: str
    is_unknown: bool

    @property
    def is_single_piece(self) -> bool:
        return self.behind - self.first == 1 and not self.is_unknown


class WordCandidates:
    """Finds the candidates in Algorithm 1, lines 5 to 10, for original sentences.

    BERT's tokenizer splits words at white space and punctuation. For a word with one token, candidates come from the
    masked-LM model. For words with several tokens, and unknown words, they are the K nearest word vectors to its
    spelling in the vocabulary, else in lower case. With a cased vocabulary, candidates for a capitalized word are
    capitalized, as in the authors' code. A word without candidates is not replaced. Recent sentences are cached.

    Raises:
      UserError: the model cannot be used, see `MLMCandidates`.
    """

    def __init__(
        self,
        model: Model,
        vectors: WordVectors | None,
        options: AugmentationOptions,
        *,
        max_length: int = 0,
        tokens_a_batch: int = DEFAULT_TOKENS_A_BATCH,
    ) -> None:
        self._vectors = vectors
        self._options = options
        self._mlm_candidates = MLMCandidates(
            model,
            count=options.num_candidates,
            masked_input=options.masked_input,
            fill=options.fill_candidates,
            max_length=max_length,
            tokens_a_batch=tokens_a_batch,
        )
        self._remembered: OrderedDict[str, Sentence] = OrderedDict()
        self._near: dict[str, tuple[str, ...]] = {}

    def __call__(self, texts: Sequence[str], on_texts: Callable[[int], None] = lambda count: None) -> list[Sentence]:
        """Finds the replaceable words in texts."""
        remembered = {text: self._remembered[text] for text in texts if text in self._remembered}
        new = [text for text in dict.fromkeys(texts) if text not in remembered]
        candidates = dict(zip(new, self._find(new, _Share(len(texts), on_texts)), strict=True)) if new else {}
        for text, sentence in candidates.items():
            self._remembered[text] = sentence
        for text in remembered:
            self._remembered.move_to_end(text)
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        if not new:
            on_texts(len(texts))
        return [remembered[text] if text in remembered else candidates[text] for text in texts]

    def _find(self, texts: Sequence[str], share: _Share) -> list[Sentence]:
        ids, words = self._words(texts)
        eligible = [[word for word in row if is_eligible(word.form, self._options.words)] for row in words]
        single = [[word.first for word in row if word.is_single_piece] for row in eligible]
        share.total_rows = sum(map(len, single))
        masked = self._mlm_candidates.candidates(ids, single, share.advance)
        share.finish()
        near = self._neighbours([word.form for row in eligible for word in row if not word.is_single_piece])
        sentences = []
        for text, row, from_model in zip(texts, eligible, masked, strict=True):
            slots = []
            for word in row:
                candidates = from_model[word.first] if word.is_single_piece else near.get(word.form, ())
                if candidates:
                    slots.append(Slot(word.start, word.end, candidates))
            sentences.append(Sentence(text, tuple(slots)))
        return sentences

    def _words(self, texts: Sequence[str]) -> tuple[list[np.ndarray], list[list[_Word]]]:
        """Returns each text's tokens and words."""
        tokenizer, pieces = self._mlm_candidates.tokenizer, self._mlm_candidates.pieces
        tokens = tokenizer.tokenize_with_offsets(list(texts))
        splits = tokens.ids.row_splits.numpy()
        all_ids, all_starts, all_ends = (token.values.numpy() for token in tokens)
        unknown = tokenizer.unk_token_id
        special = {tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id}
        ids, words = [], []
        for text, low, high in zip(texts, splits[:-1], splits[1:], strict=True):
            row: list[_Word] = []
            spelled = [pieces[token_id] for token_id in all_ids[low:high]]
            starts = [position for position, piece in enumerate(spelled) if not piece.startswith(CONTINUATION)]
            for first, behind in itertools.pairwise([*starts, len(spelled)]):
                identity = int(all_ids[low + first])
                if identity in special:
                    continue
                start, end = int(all_starts[low + first]), int(all_ends[low + behind - 1])
                form = "".join(piece.removeprefix(CONTINUATION) for piece in spelled[first:behind])
                if identity == unknown:
                    form = text[start:end].lower() if tokenizer.lowercase else text[start:end]
                row.append(_Word(first, behind, start, end, form, identity == unknown))
            ids.append(all_ids[low:high])
            words.append(row)
        return ids, words

    def _neighbours(self, forms: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Returns candidates by form, also from earlier sentences, since words often recur."""
        if self._vectors is None:
            return {}
        spelled = {form: form if form in self._vectors else form.lower() for form in forms if form not in self._near}
        neighbours = self._vectors.neighbours(spelled.values(), self._options.num_candidates)
        for form, key in spelled.items():
            near = neighbours.get(key, ())
            self._near[form] = tuple(word.title() for word in near) if form.istitle() else near
        return self._near


def is_eligible(form: str, choice: WordChoice) -> bool:
    """Whether a word may be replaced; see `AugmentationOptions.words`."""
    if choice == "all":
        return any(map(str.isalnum, form))
    lower = form.lower()
    return lower.isascii() and lower.isalpha() and lower not in STOP_WORDS


class _Share:
    """Converts finished rows to finished texts, as integers with the right sum."""

    def __init__(self, texts: int, on_texts: Callable[[int], None]) -> None:
        self.total_rows = 0
        self._texts = texts
        self._on_texts = on_texts
        self._rows = 0
        self._reported = 0

    def advance(self, rows: int) -> None:
        self._rows += rows
        self._report(self._texts * self._rows // self.total_rows)

    def finish(self) -> None:
        self._report(self._texts)

    def _report(self, texts: int) -> None:
        if texts > self._reported:
            self._on_texts(texts - self._reported)
            self._reported = texts
