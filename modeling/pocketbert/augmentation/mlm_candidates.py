"""Replacement candidates from a masked-LM model, for many sentences at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from pocketbert.augmentation.augmented_rows import MaskedInput
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert_runtime.rows import bucketed
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS, read_vocabulary

CONTINUATION = "##"
# On two cores, products reach full speed at about 1,000 rows; larger batches waste more on the last one.
DEFAULT_TOKENS_A_BATCH = 1024
# Lengths in a batch are rounded up to this multiple; a smaller one makes more half-filled batches.
_LENGTH_MULTIPLE = 4
# Rows in the authors' code have at most so many tokens.
_LONGEST = 512


@dataclass(frozen=True)
class _Row:
    """One masked sentence: tokens `first:behind` in sentence `sentence`, with token `place` masked."""

    sentence: int
    place: int
    first: int
    behind: int


class MLMCandidates:
    """Finds candidates with a masked-LM model.

    Each requested position in each sentence is one row, with this token masked. Rows are batched by length. The graph
    computes the last layer and the logits for the masked position only, and returns the K best ids.

    All batches with the same length have the same number of rows (with padding rows), so that on one machine results do
    not depend on the batch, to the last bit.

    Args:
      model: model with a masked-LM head and a tokenizer.
      count: number K of candidates per position.
      masked_input: `alone` for the masked sentence, or `with-original` for a pair with the original sentence.
      fill: True for the K most probable words, False for the words among the K most probable tokens. Continuations
        (`##ing`) and special tokens are not words.
      max_length: maximum row length; 0 for the model's, up to 512. Longer sentences are cut around the masked position.
      tokens_a_batch: approximate batch size in tokens; it affects the speed only.
    Raises:
      UserError: the model has no masked-LM head or no tokenizer, or a number is invalid.
    """

    def __init__(
        self,
        model: Model,
        *,
        count: int,
        masked_input: MaskedInput = "alone",
        fill: bool = True,
        max_length: int = 0,
        tokens_a_batch: int = DEFAULT_TOKENS_A_BATCH,
    ) -> None:
        if "masked_lm" not in model.heads:
            raise UserError(
                "the masked-LM model must have a masked-LM head; received "
                f"{'a model for ' + ', '.join(model.heads) if model.heads else 'an encoder without heads'}; pass a "
                "directory of BertForMaskedLM or BertForPreTraining"
            )
        if model.tokenizer is None:
            raise UserError("the masked-LM model must have a tokenizer; received none; add a vocab.txt")
        model.tokenizer.vocabulary.require_wordpiece("TinyBERT's data augmentation")
        model.tokenizer.vocabulary.require_no_added("TinyBERT's data augmentation", "pass the model without them")
        self.tokenizer = model.tokenizer
        self.pieces = tuple(read_vocabulary(self.tokenizer.vocab_path))
        self._with_original = masked_input == "with-original"
        longest = min(model.config.max_position_embeddings, _LONGEST)
        least = 5 if self._with_original else 3
        if max_length and not least <= max_length <= longest:
            raise UserError(f"max_length must be 0 or {least} to {longest} for this model; received {max_length}")
        self._max_length = max_length or longest
        self._tokens_a_batch = tokens_a_batch
        self.is_word = np.array([_is_word(piece) for piece in self.pieces])
        available = int(self.is_word.sum()) if fill else len(self.pieces)
        if not 1 <= count <= available:
            raise UserError(f"the number of candidates must be 1 to {available} for this vocabulary; received {count}")
        self._top = _top_function(model, count, self.is_word if fill else np.ones_like(self.is_word))

    def candidates(
        self,
        sentences: Sequence[np.ndarray],
        positions: Sequence[Iterable[int]],
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> list[dict[int, tuple[str, ...]]]:
        """For each sentence (ids, no special tokens): position → candidates, most probable first (ties by id)."""
        candidates: list[dict[int, tuple[str, ...]]] = [{} for _ in sentences]
        by_width: dict[int, list[_Row]] = {}
        for sentence, places in enumerate(positions):
            size = len(sentences[sentence])
            room = text_room(self._max_length, self._max_length, "with-original" if self._with_original else "alone")
            for place in places:
                first = max(0, min(place - room // 2, size - room))
                row = _Row(sentence, place, first, min(first + room, size))
                tokens = row.behind - row.first
                length = 2 * tokens + 3 if self._with_original else tokens + 2
                width = int(bucketed(length, self._max_length, _LENGTH_MULTIPLE))
                by_width.setdefault(width, []).append(row)
        for width in sorted(by_width):
            rows = by_width[width]
            size = max(1, self._tokens_a_batch // width)
            for start in range(0, len(rows), size):
                batch = rows[start : start + size]
                ids = self._top(*self._inputs(batch, sentences, size, width)).numpy()
                for row, best in zip(batch, ids, strict=False):
                    candidates[row.sentence][row.place] = tuple(
                        self.pieces[each] for each in best if self.is_word[each]
                    )
                on_rows(len(batch))
        return candidates

    def _inputs(
        self, rows: Sequence[_Row], sentences: Sequence[np.ndarray], size: int, width: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Makes ids, mask and segments `[size, width]`, and masked positions `[size, 1]`, int32."""
        tokenizer = self.tokenizer
        ids = np.full([size, width], tokenizer.pad_token_id, np.int32)
        mask, segments = np.zeros([2, size, width], np.int32)
        positions = np.zeros([size, 1], np.int32)
        # Padding rows have one token: attention is not defined without tokens.
        mask[:, 0] = 1
        for index, row in enumerate(rows):
            pieces = sentences[row.sentence][row.first : row.behind]
            end = len(pieces) + 2
            ids[index, 0] = tokenizer.cls_token_id
            ids[index, 1 : end - 1] = pieces
            ids[index, end - 1] = tokenizer.sep_token_id
            positions[index] = 1 + row.place - row.first
            ids[index, positions[index]] = tokenizer.mask_token_id
            if self._with_original:
                both = end + len(pieces) + 1
                ids[index, end : both - 1] = pieces
                ids[index, both - 1] = tokenizer.sep_token_id
                segments[index, end:both] = 1
                end = both
            mask[index, :end] = 1
        return ids, mask, segments, positions


def text_room(max_length: int, positions: int, masked_input: MaskedInput) -> int:
    """Counts a sentence's tokens in a row; see `MLMCandidates` for the arguments."""
    longest = max_length or min(positions, _LONGEST)
    return (longest - 3) // 2 if masked_input == "with-original" else longest - 2


def _is_word(piece: str) -> bool:
    is_special = piece in SPECIAL_TOKENS or (len(piece) > 2 and piece.startswith("[") and piece.endswith("]"))
    return bool(piece) and not piece.startswith(CONTINUATION) and not is_special


def _top_function(model: Model, count: int, allowed: np.ndarray) -> Callable[..., tf.Tensor]:
    penalty = tf.constant(np.where(allowed, 0, -np.inf), tf.float32)
    encoder, head = model.encoder, model.heads["masked_lm"]
    any_batch = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[any_batch, any_batch, any_batch, tf.TensorSpec([None, 1], tf.int32)], autograph=False)
    def top(ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": segments}
        rows = encoder.at_positions(inputs, positions)
        logits = head({"sequence_output": rows, "word_table": encoder.embeddings.word.table})[:, 0]
        return tf.math.top_k(logits + penalty, count).indices

    return top
