"""Distillation losses: pure functions that return float32 scalars from teacher and student features.

Inputs may have any float type and are cast to float32. Gradients do not flow into the teacher. Every mean is a
`masked_mean` (see `pocketbert.layers.loss_normalization`). With several replicas, or inside `normalize_by`, a function
returns its part's contribution to the batch mean.

Padding never counts as a token, query or key. The papers' equations are for one text's tokens. Departure: the code for
MobileBERT and TinyBERT includes padding in its means. Within a batch, every token (or token pair) has the same weight,
so long texts count more than short ones.

Shapes: B batch, S length, H hidden, N heads, R relation heads, C classes, P masked positions, V vocabulary. `mask` is
int32 [B, S], 1 = token.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pocketbert.distillation.relations import CHUNK_BYTES, divergence_sum
from pocketbert.errors import UserError
from pocketbert.layers.attention import mask_bias
from pocketbert.layers.loss_normalization import masked_mean, normalized_sum
from pocketbert.tasks.masked_lm import is_labelled
from pocketbert.tasks.outputs import unit_vectors
from pocketbert.training.label_losses import head_loss

# From the authors' parameter-free normalization (TF1's contrib.layers). Keras' 1e-3 would change small features.
_NORM_EPSILON = 1e-12


def feature_map_transfer(teacher_hidden: tf.Tensor, student_hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Feature map transfer for one layer.

    Sun et al. 2020 (MobileBERT), eq. 2, https://arxiv.org/abs/2004.02984:
    1/(T·N) Σ_t Σ_n (H^tr_{t,n} − H^st_{t,n})², t over tokens and n over features.

    Args:
      teacher_hidden: [B, S, H].
      student_hidden: [B, S, H].
      mask: [B, S].
    Returns:
      Scalar, squared feature units, mean over the batch's tokens and features.
    Raises:
      UserError: the widths differ.
    """
    return _hidden_squared_error(teacher_hidden, student_hidden, mask)


def feature_statistics_transfer(
    teacher_hidden: tf.Tensor, student_hidden: tf.Tensor, mask: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Feature map transfer, decomposed into differences between normalized features, means and variances.

    Sun et al. 2020 (MobileBERT), section 3.5 after eq. 2, mentions the decomposition without an equation. The equations
    come from the authors' code. With the mean μ_t and the (biased) variance σ²_t over token t's H features, and
    LN(h) = (h − μ) / √(σ² + ε), where ε = 1e-12:

    - normalized: 1/(T·N) Σ_t Σ_n (LN(H^tr_t)_n − LN(H^st_t)_n)²
    - mean: 1/T Σ_t (μ^tr_t − μ^st_t)²
    - variance: 1/T Σ_t |σ²^tr_t − σ²^st_t|

    The terms are unweighted here; the authors' weights are 100, 5000 and 5. Departure: the authors' TF1 code computes
    the teacher's mean and variance over all layers at once. This function uses one layer, as in their later TF2 code.

    Args:
      teacher_hidden: [B, S, H].
      student_hidden: [B, S, H].
      mask: [B, S].
    Returns:
      Scalars `normalized` (no unit), `mean` and `variance` (squared feature units), each a mean over the batch's
      tokens; `normalized` also over features.
    Raises:
      UserError: the widths differ.
    """
    teacher, student = _alike(teacher_hidden, student_hidden, "hidden states", _ADAPTER)
    teacher_normalized, teacher_mean, teacher_variance = _normalize(teacher)
    student_normalized, student_mean, student_variance = _normalize(student)
    # `square` saves one activation for its gradient, the difference; `squared_difference` would save both inputs.
    normalized = tf.square(student_normalized - teacher_normalized)
    return {
        "normalized": masked_mean(normalized, mask[:, :, None]),
        "mean": masked_mean(tf.math.squared_difference(student_mean, teacher_mean), mask),
        "variance": masked_mean(tf.abs(student_variance - teacher_variance), mask),
    }


def attention_transfer(teacher_logits: tf.Tensor, student_logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Attention transfer for one layer.

    Sun et al. 2020 (MobileBERT), eq. 3, https://arxiv.org/abs/2004.02984:
    1/(T·A) Σ_t Σ_a KL(a^tr_{t,a} ‖ a^st_{t,a}), t over queries, a over heads; each distribution is over keys.

    The authors' code minimizes the cross-entropy, which differs by the teacher's entropy. The gradient is the same, but
    the KL divergence is 0 for a perfect student.

    Args:
      teacher_logits: [B, N, S, S], queries before keys: scaled dot products before mask and softmax.
      student_logits: [B, N, S, S], with as many heads.
      mask: [B, S].
    Returns:
      Scalar, nats, mean over the batch's heads and query tokens.
    Raises:
      UserError: the models differ in heads.
    """
    teacher, student = _alike(teacher_logits, student_logits, "attention logits", _HEADS)
    bias = mask_bias(mask, tf.float32)
    return masked_mean(_divergences(tf.stop_gradient(teacher) + bias, student + bias), mask[:, None, :])


def tinybert_attention(teacher_logits: tf.Tensor, student_logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Attention-based distillation for one layer.

    Jiao et al. 2020 (TinyBERT), eq. 7, https://arxiv.org/abs/1909.10351: 1/h Σ_i MSE(A^S_i, A^T_i), i over heads, where
    A is the unnormalized attention matrix over real tokens.

    Departure: the authors' code adds the mask to the logits, replaces values up to −100 by 0 on both sides, and divides
    by the number of all pairs, including padding.

    Args:
      teacher_logits: [B, N, S, S], queries before keys: scaled dot products before mask and softmax.
      student_logits: [B, N, S, S], with as many heads.
      mask: [B, S].
    Returns:
      Scalar, squared logit units, mean over heads and over token pairs in the same text.
    Raises:
      UserError: the models differ in heads.
    """
    teacher, student = _alike(teacher_logits, student_logits, "attention logits", _HEADS)
    pairs = mask[:, None, :, None] * mask[:, None, None, :]
    return masked_mean(tf.math.squared_difference(student, teacher), pairs)


def tinybert_hidden(teacher_hidden: tf.Tensor, student_projected: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Hidden-state distillation for one layer, or embedding-layer distillation.

    Jiao et al. 2020 (TinyBERT), eq. 8 and 9, https://arxiv.org/abs/1909.10351: MSE(H^S·W_h, H^T) and MSE(E^S·W_e, E^T).

    Args:
      teacher_hidden: [B, S, H], the output of a layer or the embedding.
      student_projected: [B, S, H], the student's features after the learnable projection W.
      mask: [B, S].
    Returns:
      Scalar, squared feature units, mean over the batch's tokens and features.
    Raises:
      UserError: the widths differ.
    """
    return _hidden_squared_error(teacher_hidden, student_projected, mask)


def soft_cross_entropy(
    teacher_logits: tf.Tensor,
    student_logits: tf.Tensor,
    temperature: float = 1.0,
    mask: tf.Tensor | None = None,
) -> tf.Tensor:
    """Prediction-layer distillation: CE(z^T / t, z^S / t) = −Σ_c softmax(z^T / t)_c · log softmax(z^S / t)_c.

    Jiao et al. 2020 (TinyBERT), eq. 10, https://arxiv.org/abs/1909.10351; Liu et al. 2021 (HSK), section 3.3. Like the
    papers, it has no factor t² (Hinton et al. 2015). Departure: TinyBERT's code also divides by the number of classes.
    With one row per masked position and t = 1, it is L_KD in MobileBERT's eq. 4.

    Args:
      teacher_logits: [..., C], one row per example.
      student_logits: [..., C].
      temperature: t > 0; TinyBERT uses 1.
      mask: [...], 1 = example counts; None counts the teacher's rows. Pass a mask computed from the inputs:
        micro-batches then need no live teacher to count their weights.
    Returns:
      Scalar, nats, mean over examples. For a perfect student, it is the teacher's mean entropy, not 0.
    Raises:
      UserError: the models differ in classes, or the temperature is not above 0.
    """
    if not temperature > 0:
        raise UserError(f"the temperature must be above 0; received {temperature}; the papers use 1")
    teacher, student = _alike(teacher_logits, student_logits, "logits", "give the student the teacher's labels")
    # Counting the teacher's rows keeps the student out of the count of micro-batches.
    counted = tf.ones_like(teacher[..., 0]) if mask is None else mask
    # For ranks other than 2, TensorFlow checks sizes at run time. Graphs keep such checks, so counting the weights
    # would run the student.
    if student.shape.rank != 2:
        teacher, student = (tf.reshape(logits, [-1, student.shape[-1]]) for logits in (teacher, student))
    teacher, student = teacher / temperature, student / temperature
    losses = tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(teacher), student)
    return masked_mean(losses, tf.reshape(counted, [-1]))


def relation_transfer(
    teacher_vectors: tf.Tensor,
    student_vectors: tf.Tensor,
    mask: tf.Tensor,
    num_relation_heads: int,
    teacher_others: tf.Tensor | None = None,
    student_others: tf.Tensor | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> tf.Tensor:
    """Multi-head self-attention relation distillation for one pair (i, j) of queries, keys and values.

    Wang et al. 2021 (MiniLMv2), eq. 6 to 8, https://arxiv.org/abs/2012.15828, for L_ij in eq. 5:
    1/(A_r·|x|) Σ_a Σ_t KL(R^T_{a,t} ‖ R^S_{a,t}), R_a = softmax(A_{i,a}·A_{j,a}ᵀ / √d_r), a over relation heads, t over
    tokens; each distribution is over A_j's tokens. All heads' vectors are concatenated and split into relation heads,
    so teacher and student may differ in width and attention heads.

    The relations, R matrices [S, S] per text, are never all in memory: `divergence_sum` works in chunks.

    Args:
      teacher_vectors: [B, S, H], queries, keys or values (A_i), heads concatenated.
      student_vectors: [B, S, H'], the student's.
      mask: [B, S].
      num_relation_heads: R, or A_r in the paper; must divide both widths.
      teacher_others: [B, S, H], A_j; None for A_i: Q-Q, K-K or V-V.
      student_others: [B, S, H'], the student's; give both or neither.
      chunk_bytes: memory for a chunk of relations.
    Returns:
      Scalar, nats, mean over the batch's relation heads and tokens.
    Raises:
      UserError: R does not divide a width, or only one of `teacher_others` and `student_others` is given.
    """
    if (teacher_others is None) != (student_others is None):
        missing = "teacher_others" if teacher_others is None else "student_others"
        raise UserError(f"teacher_others and student_others must be given together; {missing} is missing")
    for vectors, model in ((teacher_vectors, "teacher"), (student_vectors, "student")):
        if num_relation_heads < 1 or vectors.shape[-1] % num_relation_heads:
            raise UserError(
                f"num_relation_heads must divide the {model}'s width {vectors.shape[-1]}; received {num_relation_heads}"
            )
    total = divergence_sum(
        (teacher_vectors, teacher_vectors if teacher_others is None else teacher_others),
        (student_vectors, student_vectors if student_others is None else student_others),
        mask,
        num_relation_heads,
        chunk_bytes,
    )
    return normalized_sum(total / num_relation_heads, tf.reduce_sum(tf.cast(mask, tf.float32)))


def masked_hidden(
    teacher_hidden: tf.Tensor, student_projected: tf.Tensor, width_keep: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Compressed hidden state distillation for one layer.

    Liu et al. 2021 (HSK), eq. 3 and section 2.3, https://arxiv.org/abs/2106.05691: MSE(H^S·W, M ⊙ H^T). Eliminated
    widths have the target 0 and count in the mean. Eliminated tokens do not count; skip eliminated layers.

    Args:
      teacher_hidden: [B, S, H].
      student_projected: [B, S, H], the student's features after the learnable projection W.
      width_keep: M, 1 = kept, any type: [H] for a static mask, or [B, S, H] for a mask per token.
      mask: [B, S], 1 = kept token.
    Returns:
      Scalar, squared feature units, mean over kept tokens and all H features.
    Raises:
      UserError: the widths differ.
    """
    remaining = tf.cast(teacher_hidden, tf.float32) * tf.cast(width_keep, tf.float32)
    return _hidden_squared_error(remaining, student_projected, mask)


def pretraining_distillation(
    mlm_labels: tf.Tensor,
    teacher_mlm_logits: tf.Tensor,
    student_mlm_logits: tf.Tensor,
    nsp_labels: tf.Tensor,
    nsp_logits: tf.Tensor,
    alpha: float,
) -> tf.Tensor:
    """Pretraining distillation: α·L_MLM + (1 − α)·L_KD + L_NSP.

    Sun et al. 2020 (MobileBERT), eq. 4, https://arxiv.org/abs/2004.02984. The paper gives no equation for L_KD; in the
    authors' code it is `soft_cross_entropy` at the same masked positions, −Σ_v softmax(z^tr)_v · log softmax(z^st)_v
    (with α = 0.5).

    Args:
      mlm_labels: int [B, P], masked tokens' ids; −1 does not count.
      teacher_mlm_logits: [B, P, V].
      student_mlm_logits: [B, P, V].
      nsp_labels: int [B], 0 = the second text follows the first.
      nsp_logits: [B, 2], the student's.
      alpha: α, 0 to 1.
    Returns:
      Scalar, nats: means over the batch's masked positions, and over examples for L_NSP.
    Raises:
      UserError: the vocabularies differ in size, or α is below 0 or above 1.
    """
    if not 0 <= alpha <= 1:
        raise UserError(f"alpha must be 0 to 1; received {alpha}")
    teacher, student = _alike(
        teacher_mlm_logits, student_mlm_logits, "masked-LM logits", "use the same vocabulary for both models"
    )
    distilled = soft_cross_entropy(teacher, student, mask=is_labelled(mlm_labels))
    masked_lm = head_loss("masked_lm", student, mlm_labels)
    return alpha * masked_lm + (1 - alpha) * distilled + head_loss("next_sentence", nsp_logits, nsp_labels)


def embedding_vectors(teacher_vectors: tf.Tensor, student_vectors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean squared difference between embeddings [B, D] over texts and features (Reimers & Gurevych 2020, eq. 1)."""
    teacher, student = _alike(teacher_vectors, student_vectors, "embeddings", _ADAPTER)
    return masked_mean(tf.reduce_mean(tf.math.squared_difference(student, teacher), axis=1), tf.ones_like(mask[:, 0]))


def embedding_similarities(
    teacher_vectors: tf.Tensor, student_vectors: tf.Tensor, mask: tf.Tensor, temperature: float
) -> tf.Tensor:
    """KL divergence between the teacher's and the student's similarities within a batch.

    Fang et al. 2021 (SEED), eq. 4 and 5, https://arxiv.org/abs/2101.04731: a text's similarities are softmax_j(cos(z_i,
    z_j) / τ) over the batch's other texts. Departures: the batch replaces the queue of earlier texts, the text itself
    does not count, and the KL divergence differs by the teacher's constant entropy.

    Args:
      teacher_vectors: [B, D].
      student_vectors: [B, E]; E may differ from D.
      mask: [B, S], counts the texts.
      temperature: τ.
    Returns:
      Scalar, nats, mean over texts.
    """
    itself = tf.linalg.diag(tf.fill([tf.shape(mask)[0]], -1e9))

    def logits(vectors: tf.Tensor) -> tf.Tensor:
        units = unit_vectors(tf.cast(vectors, tf.float32))
        return tf.matmul(units, units, transpose_b=True) / temperature + itself

    divergences = _divergences(tf.stop_gradient(logits(teacher_vectors)), logits(student_vectors))
    return masked_mean(divergences, tf.ones_like(mask[:, 0]))


_ADAPTER = "project the student's features to the teacher's width with an adapter"
_HEADS = "use a student with the teacher's number of heads, or a method with relation heads"


def _alike(teacher: tf.Tensor, student: tf.Tensor, what: str, remedy: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Casts both to float32, stops the teacher's gradient, and refuses different shapes, which could broadcast."""
    teacher, student = tf.cast(teacher, tf.float32), tf.cast(student, tf.float32)
    if not teacher.shape.is_compatible_with(student.shape):
        raise UserError(
            f"{what} of teacher and student must have the same shape; received {teacher.shape} and {student.shape}; "
            f"{remedy}"
        )
    return tf.stop_gradient(teacher), student


def _hidden_squared_error(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    teacher, student = _alike(teacher, student, "hidden states", _ADAPTER)
    return masked_mean(tf.math.squared_difference(student, teacher), mask[:, :, None])


def _normalize(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """[B, S, H] → normalized [B, S, H], mean [B, S], variance [B, S]."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + _NORM_EPSILON), mean[:, :, 0], variance[:, :, 0]


@tf.custom_gradient
def _divergences(teacher: tf.Tensor, student: tf.Tensor) -> Any:
    """KL(softmax(teacher) ‖ softmax(student)) over the last axis, without a gradient for the teacher.

    The custom gradient saves memory: every layer's saved activations live until the backward pass. This function saves
    one array, the gradient softmax(student) − softmax(teacher); TensorFlow's own gradient would save two.
    """
    # Both distributions are computed in one way, so that equal logits give exactly 0, and exactly 0 as gradient.
    teacher_log, student_log = tf.nn.log_softmax(teacher), tf.nn.log_softmax(student)
    teacher_probs = tf.exp(teacher_log)
    divergences = tf.reduce_sum(teacher_probs * (teacher_log - student_log), -1)
    difference = tf.exp(student_log) - teacher_probs
    return divergences, lambda upstream: (None, upstream[..., tf.newaxis] * difference)
