"""How often [SEP] is among the tokens that [CLS] attends to most ("Marginal Utility Diminishes", figures 6 and 14).

Liu et al. 2021, section 4.2.2 and appendix E.2: "the proportion of the data samples in which [SEP] is among the top1
and top3 attended tokens", for each layer in a fine-tuned BERT. Section 4.2.1, equation 6 ranks the tokens: a token's
score is its attention probability from the first token ([CLS]), averaged over the heads. So an example counts in a
layer if at least one of its k tokens with the highest scores is a separator.

The paper does not say more. Here [CLS] itself takes part in the ranking, as equation 6 scores all tokens; padding does
not; in a pair, every [SEP] is a separator; ties go to the lower position; an example with at most k tokens counts.
RoBERTa and XLM-R have <s> and </s> instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import encode, plan_batches
from pocketbert.data.examples import Examples
from pocketbert.distillation.hidden_selection import attended_positions
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.plots.attention_maps import checked_tokenizer
from pocketbert.progress import track

TOP = (1, 3)


@dataclass(frozen=True, kw_only=True)
class SeparatorShares:
    """Counts texts with a separator among their most attended tokens.

    Attributes:
      texts: number of texts.
      counts: k → number of texts for each layer.
    """

    texts: int
    counts: Mapping[int, tuple[int, ...]]

    def shares(self, k: int) -> tuple[float, ...]:
        """Returns the fraction of texts with a separator among the k most attended tokens, for each layer."""
        return tuple(count / self.texts for count in self.counts[k])


def separator_shares(
    model: Model,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int = 128,
    batch_size: int = 32,
    top: Sequence[int] = TOP,
    show_progress: bool = True,
) -> SeparatorShares:
    """Counts texts with a separator among their k most attended tokens, for each layer and k.

    Args:
      model: a model with a tokenizer; runs without dropout.
      texts: at least one text.
      pairs: as many second texts.
      max_length: maximum sequence length; longer texts are truncated.
      batch_size: texts per step; it does not change the counts.
      top: the numbers k.
      show_progress: whether to show a progress bar on stderr.
    Raises:
      UserError: there are no texts, the model has no tokenizer or too few positions, or its attention is not finite.
    """
    tokenizer = checked_tokenizer(model, max_length, "max_length")
    if not texts:
        raise UserError("separator shares need at least one text; received none")
    names = [str(index) for index in range(len(texts))]
    examples = Examples(list(texts), None if pairs is None else list(pairs), None, names, "the texts")
    encoded = encode(examples, tokenizer, max_length, show_progress=show_progress)

    @tf.function(input_signature=[{name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}])
    def count(inputs: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        real, separator = inputs["input_mask"] > 0, inputs["input_word_ids"] == tokenizer.sep_token_id
        hits_found, finite = [], []
        for probs in model.features(inputs, ["attention_probs"], training=False)["attention_probs"]:
            finite.append(tf.reduce_all(tf.math.is_finite(probs[:, :, 0])))
            # Texts with fewer than k tokens repeat position 0; the first token is no separator.
            best = [attended_positions(probs, real, k) for k in top]
            hits = [tf.reduce_any(tf.gather(separator, keys, batch_dims=1), axis=1) for keys in best]
            hits_found.append([tf.reduce_sum(tf.cast(hit, tf.int64)) for hit in hits])
        return tf.convert_to_tensor(hits_found), tf.reduce_all(finite)

    counts = np.zeros([model.config.num_layers, len(top)], np.int64)
    plan = plan_batches(encoded.lengths, batch_size=batch_size, seed=0, epoch=0, shuffle=False)
    for indices in track(plan, "attention", "step") if show_progress else plan:
        hits_found, finite = count(encoded.batch(indices)[0])
        if not finite:
            raise UserError("separator shares: the attention must be finite; received NaN or infinity")
        counts += hits_found.numpy()
    return SeparatorShares(
        texts=len(texts), counts={k: tuple(column.tolist()) for k, column in zip(top, counts.T, strict=True)}
    )
