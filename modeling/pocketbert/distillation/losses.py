"""What a student is asked to take from its teacher: pure functions of features, float32 scalars out.

Every mean is a `masked_mean` (see `means`): under several replicas, or inside `loss_normalization.normalize_by`, a
function gives this part's share of the batch's mean. All inputs may be of any float type and are cast to float32
first. The teacher's get no gradient.

Padding counts nowhere: not as a token, not as a query and not as a key. The papers' equations are over a text's own
tokens; MobileBERT's and TinyBERT's code averages over padding too, which is a departure here from that code. Over a
batch every token (or pair of tokens) weighs the same, so a long text weighs more than a short one; the equations are
of one text.

Shapes: B batch, S length, H hidden, N heads, R relation heads, C classes, P masked positions, V vocabulary. `mask` is
int32 [B, S], 1 = token.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pocketbert.errors import UserError
from pocketbert.layers.attention import mask_bias
from pocketbert.layers.loss_normalization import masked_mean
from pocketbert.tasks.masked_lm import is_labelled
from pocketbert.training.label_losses import head_loss

# Of the authors' parameter-free normalization (TF1's contrib.layers); Keras' 1e-3 would change small features.
_NORM_EPSILON = 1e-12


def feature_map_transfer(teacher_hidden: tf.Tensor, student_hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Feature map transfer, of one layer.

    Sun et al. 2020 (MobileBERT), eq. 2, https://arxiv.org/abs/2004.02984:
    1/(T·N) Σ_t Σ_n (H^tr_{t,n} − H^st_{t,n})², t over tokens and n over features.

    Args:
      teacher_hidden: [B, S, H].
      student_hidden: [B, S, H].
      mask: [B, S].

    Returns:
      Scalar, squared units of the features, mean over the batch's tokens and features.

    Raises:
      UserError: the widths differ.
    """
    return _hidden_squared_error(teacher_hidden, student_hidden, mask)


def feature_statistics_transfer(
    teacher_hidden: tf.Tensor, student_hidden: tf.Tensor, mask: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Feature map transfer decomposed into a normalized difference and the difference of the statistics.

    Sun et al. 2020 (MobileBERT), section 3.5 after eq. 2, names the decomposition and gives no equation; this is the
    one in the authors' code. With mean μ_t and (biased) variance σ²_t of token t's H features, and
    LN(h) = (h − μ) / √(σ² + ε), ε = 1e-12, without parameters:

    - normalized: 1/(T·N) Σ_t Σ_n (LN(H^tr_t)_n − LN(H^st_t)_n)²
    - mean: 1/T Σ_t (μ^tr_t − μ^st_t)²
    - variance: 1/T Σ_t |σ²^tr_t − σ²^st_t|

    The authors weigh them 100, 5000 and 5; here they are unweighted. Departure: their TF1 code takes the teacher's mean
    and variance over all of its layers at once; as in their later TF2 code, they are those of this layer's token.

    Args:
      teacher_hidden: [B, S, H].
      student_hidden: [B, S, H].
      mask: [B, S].

    Returns:
      Scalars `normalized` (no unit), `mean` and `variance` (squared units of the features), each a mean over the
      batch's tokens, the first over features too.

    Raises:
      UserError: the widths differ.
    """
    teacher, student = _alike(teacher_hidden, student_hidden, "hidden states", _ADAPTER)
    teacher_normalized, teacher_mean, teacher_variance = _normalize(teacher)
    student_normalized, student_mean, student_variance = _normalize(student)
    # The square keeps the difference for its gradient; `squared_difference` would keep both sides.
    normalized = tf.square(student_normalized - teacher_normalized)
    return {
        "normalized": masked_mean(normalized, mask[:, :, None]),
        "mean": masked_mean(tf.math.squared_difference(student_mean, teacher_mean), mask),
        "variance": masked_mean(tf.abs(student_variance - teacher_variance), mask),
    }


def attention_transfer(teacher_logits: tf.Tensor, student_logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Attention transfer, of one layer.

    Sun et al. 2020 (MobileBERT), eq. 3, https://arxiv.org/abs/2004.02984:
    1/(T·A) Σ_t Σ_a KL(a^tr_{t,a} ‖ a^st_{t,a}), t over queries, a over heads; a distribution is over keys.

    The authors' code minimizes the cross-entropy, which differs by the teacher's entropy: the gradient is the same, but
    the KL is 0 at a perfect student.

    Args:
      teacher_logits: [B, N, S, S], queries before keys: scaled dot products before mask and softmax.
      student_logits: [B, N, S, S], of the same number of heads.
      mask: [B, S].

    Returns:
      Scalar, nats, mean over heads and the batch's query tokens.

    Raises:
      UserError: the numbers of heads differ.
    """
    teacher, student = _alike(teacher_logits, student_logits, "attention logits", _HEADS)
    return _attention_divergence(teacher, student, mask)


def tinybert_attention(teacher_logits: tf.Tensor, student_logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Attention based distillation, of one layer.

    Jiao et al. 2020 (TinyBERT), eq. 7, https://arxiv.org/abs/1909.10351: 1/h Σ_i MSE(A^S_i, A^T_i), i over heads, where
    A is the unnormalized attention matrix of a text's own tokens.

    Departure: the authors' code adds the mask to the logits, sets all that is then at most −100 to 0 on both sides,
    and divides by all pairs, padding included.

    Args:
      teacher_logits: [B, N, S, S], queries before keys: scaled dot products before mask and softmax.
      student_logits: [B, N, S, S], of the same number of heads.
      mask: [B, S].

    Returns:
      Scalar, squared units of the logits, mean over heads and over the batch's pairs of tokens (of one text).

    Raises:
      UserError: the numbers of heads differ.
    """
    teacher, student = _alike(teacher_logits, student_logits, "attention logits", _HEADS)
    pairs = mask[:, None, :, None] * mask[:, None, None, :]
    return masked_mean(tf.math.squared_difference(student, teacher), pairs)


def tinybert_hidden(teacher_hidden: tf.Tensor, student_projected: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Hidden states based, or embedding-layer, distillation, of one layer.

    Jiao et al. 2020 (TinyBERT), eq. 8 and 9, https://arxiv.org/abs/1909.10351: MSE(H^S·W_h, H^T) and MSE(E^S·W_e, E^T).

    Args:
      teacher_hidden: [B, S, H], the output of a layer or of the embedding.
      student_projected: [B, S, H], the student's after the learnable map W.
      mask: [B, S].

    Returns:
      Scalar, squared units of the features, mean over the batch's tokens and features.

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

    Jiao et al. 2020 (TinyBERT), eq. 10, https://arxiv.org/abs/1909.10351; Liu et al. 2021 (HSK), section 3.3. As in
    these papers there is no factor t² (Hinton et al. 2015). Departure: TinyBERT's code divides by the number of classes
    too. With a row a masked position and t = 1 it is the L_KD of MobileBERT's eq. 4.

    Args:
      teacher_logits: [..., C], one row an example.
      student_logits: [..., C].
      temperature: t, above 0; TinyBERT's is 1.
      mask: [...], 1 = an example that counts; None counts all, by the teacher's rows. Where it comes from the inputs,
        micro-batches are counted without running a live teacher for it.

    Returns:
      Scalar, nats, mean over examples. A perfect student's is the mean entropy of the teacher, not 0.

    Raises:
      UserError: the numbers of classes differ, or the temperature is not above 0.
    """
    if not temperature > 0:
        raise UserError(f"the temperature must be above 0; received {temperature}; the papers use 1")
    teacher, student = _alike(teacher_logits, student_logits, "logits", "give the student the teacher's labels")
    # Counted by the teacher's rows: where micro-batches are counted first, that leaves the student out of it.
    counted = tf.ones_like(teacher[..., 0]) if mask is None else mask
    # One row an example. For other ranks TensorFlow's function checks sizes at run time, and a graph never leaves a
    # check out, so recording the means would cost a pass through the student.
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
) -> tf.Tensor:
    """Multi-head self-attention relation distillation, of one pair (i, j) of queries, keys and values.

    Wang et al. 2021 (MiniLMv2), eq. 6 to 8, https://arxiv.org/abs/2012.15828, the L_ij of eq. 5:
    1/(A_r·|x|) Σ_a Σ_t KL(R^T_{a,t} ‖ R^S_{a,t}), R_a = softmax(A_{i,a}·A_{j,a}ᵀ / √d_r), a over relation heads, t over
    tokens; a distribution is over the tokens of A_j. The heads' vectors are concatenated and split anew into relation
    heads, so teacher and student may differ in width and in number of attention heads.

    Args:
      teacher_vectors: [B, S, H], queries, keys or values (A_i), heads concatenated.
      student_vectors: [B, S, H'], the student's of the same kind.
      mask: [B, S].
      num_relation_heads: R, or A_r in the paper; it divides both widths.
      teacher_others: [B, S, H], A_j. By default A_i itself: Q-Q, K-K or V-V.
      student_others: [B, S, H'], the student's of the same kind; given if and only if `teacher_others` is.

    Returns:
      Scalar, nats, mean over relation heads and the batch's tokens.

    Raises:
      UserError: R does not divide a width, or only one of the two others is given.
    """
    if (teacher_others is None) != (student_others is None):
        missing = "teacher_others" if teacher_others is None else "student_others"
        raise UserError(f"a relation of two kinds needs both models' vectors of the second; {missing} is missing")
    teacher = _relations(teacher_vectors, teacher_others, num_relation_heads, "teacher")
    student = _relations(student_vectors, student_others, num_relation_heads, "student")
    return _attention_divergence(tf.stop_gradient(teacher), student, mask)


def masked_hidden(
    teacher_hidden: tf.Tensor, student_projected: tf.Tensor, width_keep: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Distillation of compressed hidden states, of one layer.

    Liu et al. 2021 (HSK), eq. 3 and section 2.3, https://arxiv.org/abs/2106.05691: MSE(H^S·W, M ⊙ H^T). An eliminated
    width is a target of zero and counts in the mean. An eliminated token is not compared and does not count; neither is
    an eliminated layer, for which this is not called.

    Args:
      teacher_hidden: [B, S, H].
      student_projected: [B, S, H], the student's after the learnable map W.
      width_keep: M, 1 = kept, of any type: [H] for a static choice, or [B, S, H] for one a token.
      mask: [B, S], 1 = a token that was kept.

    Returns:
      Scalar, squared units of the features, mean over kept tokens and all H features.

    Raises:
      UserError: the widths differ.
    """
    kept = tf.cast(teacher_hidden, tf.float32) * tf.cast(width_keep, tf.float32)
    return _hidden_squared_error(kept, student_projected, mask)


def pretraining_distillation(
    mlm_labels: tf.Tensor,
    teacher_mlm_logits: tf.Tensor,
    student_mlm_logits: tf.Tensor,
    nsp_labels: tf.Tensor,
    nsp_logits: tf.Tensor,
    alpha: float,
) -> tf.Tensor:
    """Pretraining distillation: α·L_MLM + (1 − α)·L_KD + L_NSP.

    Sun et al. 2020 (MobileBERT), eq. 4, https://arxiv.org/abs/2004.02984. L_MLM is the cross-entropy of the masked
    words, L_NSP that of the next sentence. The paper gives no equation for L_KD; as in the authors' code it is
    −Σ_v softmax(z^tr)_v · log softmax(z^st)_v at the same masked positions (code: α = 0.5). The three are
    the losses of the tasks and `soft_cross_entropy`.

    Args:
      mlm_labels: int [B, P], the words that were masked; −1 does not count.
      teacher_mlm_logits: [B, P, V].
      student_mlm_logits: [B, P, V].
      nsp_labels: int [B], 0 = the second text follows the first.
      nsp_logits: [B, 2], the student's.
      alpha: α, 0 to 1.

    Returns:
      Scalar, nats: means over the batch's masked positions, and over its examples for L_NSP.

    Raises:
      UserError: the vocabularies differ in size, or α is outside of 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise UserError(f"alpha weighs two losses and must lie between 0 and 1; received {alpha}")
    teacher, student = _alike(
        teacher_mlm_logits, student_mlm_logits, "masked-LM logits", "give both models one vocabulary"
    )
    distilled = soft_cross_entropy(teacher, student, mask=is_labelled(mlm_labels))
    masked_lm = head_loss("masked_lm", student, mlm_labels)
    return alpha * masked_lm + (1 - alpha) * distilled + head_loss("next_sentence", nsp_logits, nsp_labels)


_ADAPTER = "map the student's to the teacher's width with an adapter"
_HEADS = "take a student with the teacher's number of heads, or a method that compares relations"


def _alike(teacher: tf.Tensor, student: tf.Tensor, what: str, remedy: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Both as float32, of shapes that do not broadcast silently; the teacher's without a gradient."""
    teacher, student = tf.cast(teacher, tf.float32), tf.cast(student, tf.float32)
    if not teacher.shape.is_compatible_with(student.shape):
        raise UserError(
            f"the {what} of teacher and student must have one shape; received {teacher.shape} and {student.shape}; "
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


def _attention_divergence(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """KL(softmax(teacher) ‖ softmax(student)) over keys; float32 [B, heads, S, S] → scalar."""
    bias = mask_bias(mask, tf.float32)
    return masked_mean(_divergences(tf.stop_gradient(teacher) + bias, student + bias), mask[:, None, :])


@tf.custom_gradient
def _divergences(teacher: tf.Tensor, student: tf.Tensor) -> Any:
    """KL(softmax(teacher) ‖ softmax(student)) over the last axis; the teacher gets no gradient.

    Written out, since each layer of a network keeps what its gradient needs until the backward pass: here that is one
    array, the gradient itself, softmax(student) − softmax(teacher), where TensorFlow's own rules keep two.
    """
    # The two distributions in one way: equal logits give exactly 0, and a gradient of exactly 0.
    teacher_log, student_log = tf.nn.log_softmax(teacher), tf.nn.log_softmax(student)
    teacher_probs = tf.exp(teacher_log)
    divergences = tf.reduce_sum(teacher_probs * (teacher_log - student_log), -1)
    difference = tf.exp(student_log) - teacher_probs
    return divergences, lambda upstream: (None, upstream[..., tf.newaxis] * difference)


def _relations(vectors: tf.Tensor, others: tf.Tensor | None, heads: int, model: str) -> tf.Tensor:
    """A_i·A_jᵀ / √d_r: [B, S, H] twice → float32 [B, R, S, S]."""
    width = vectors.shape[-1]
    if heads < 1 or width % heads:
        raise UserError(f"relation heads must divide the {model}'s width {width}; received {heads}")
    left = _split_heads(vectors, heads) * (width // heads) ** -0.5
    right = _split_heads(vectors if others is None else others, heads)
    return tf.matmul(left, right, transpose_b=True)


def _split_heads(vectors: tf.Tensor, heads: int) -> tf.Tensor:
    """[B, S, H] → float32 [B, heads, S, H / heads]; a head is a token's own features, so the axes are swapped after."""
    shape = tf.shape(vectors)
    split = tf.reshape(tf.cast(vectors, tf.float32), [shape[0], shape[1], heads, vectors.shape[-1] // heads])
    return tf.transpose(split, [0, 2, 1, 3])
