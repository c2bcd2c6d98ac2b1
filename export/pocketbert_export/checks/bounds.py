"""Bounds of the verification gate, one set per recipe.

u is the relative step of a number format, r the root mean square of its rounding error.

- `float32`: u = 2^-24. A sum of 1,000 products errs by about sqrt(1000)·u, so a layer errs by at most 2e-6, and 24
  layers by less than 1e-4 if all errors add up.
- `float16`: weights are rounded once, r = 2^-11/sqrt(3) = 2.8e-4 of each. A dense layer then errs by r of its
  output, and 100 layers in sequence by sqrt(100)·r = 3e-3. The largest of thousands of outputs is about 4 times the
  root mean square: 1e-2.
- `dynamic_wi8`: a row of normally distributed weights with a maximum of 4 deviations has steps of 4/127,
  r = 4/(127·sqrt(12)) = 0.9 %; a row of activations with a maximum of 8 deviations 1.8 %. Together this is 2 % per
  dense layer. Residual connections halve the error for the layers above; 36 dense layers (six blocks) leave 6 %. The
  bound on the root mean square is 15 %, and the bound on the largest output is four times that.
- `dynamic_wi4`: the largest of 32 normally distributed weights is 2.1 deviations on average, so steps are 2.1/7,
  r = 2.1/(7·sqrt(12)) = 8.6 %; with the activations 8.8 % per dense layer, 4.4 times `dynamic_wi8`. Outputs are
  sums of many rounded weights, and the largest weights, which matter most, are rounded relative to themselves.
  Six blocks leave 26 % by the estimate for `dynamic_wi8`; the bound is 35 %. The share of texts with another label
  grows with the error: 7 % instead of 3 %. Loss of the metric has the bound of `dynamic_wi8`.
- `static_wi8_ai8`: one range serves all texts, and outputs of dense layers are rounded too. A range of 12 deviations
  has steps of 12/255, r = 12/(255·sqrt(12)) = 1.4 %; three such roundings and the weights' make 2.6 %, 1.3 times
  `dynamic_wi8`, and so are the bounds.
- `static_wi8_ai8_full`: a block has six dense layers and up to twelve other operators, which round by 1.4 % each:
  (6·2.6² + 12·1.4²)^0.5 = 8 %, 1.3 times the 6.4 % of `static_wi8_ai8`. Probabilities have steps of 1/256, which is
  coarser for long texts. The bounds are 1.5 times those of `static_wi8_ai8`.
- `static_wi8_ai16`: layers with int16 activations round their weights only. The others may be as coarse as in
  `static_wi8_ai8`, so the bounds are the same.
- `mixed`: no layer is coarser than in `dynamic_wi4`, so the bounds are the same.

Embeddings are compared by angle: with a relative error r, independent of the vector, the cosine is 1 - r^2/2. `float32`
leaves the rounding of the cosine; `float16` 5e-6. `dynamic_wi8` may have r = 4.5 %, three quarters of the estimate for
six blocks, because a mean over tokens averages their errors; `static_wi8_ai8` has 1.3 times the error and 1.7 times the
angle's share, and `static_wi8_ai8_full` 2 times the error; `dynamic_wi4` has r = 35 %.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds on the relative differences between a bundle and the float model; see the module docstring.

    Attributes:
      largest_difference: largest difference of one logit.
      rms_difference: root mean square difference over all logits.
      label_agreement: smallest share of examples with the same label as the reference; near ties count as agreeing.
      metric_drop_points: largest drop of the task's metric in points (1/100), unless chance explains it.
      metric_drop_deviations: number of correct predictions that may be lost, in standard deviations of chance; always
        at least one prediction.
      length_difference: largest difference between two lengths of the same bundle.
      own_difference: largest difference from the golden outputs that the file gave at export.
      mean_cosine: least mean cosine between an embedding of the bundle and that of the float model.
    """

    largest_difference: float
    rms_difference: float
    label_agreement: float
    metric_drop_points: float
    metric_drop_deviations: float
    length_difference: float
    own_difference: float
    mean_cosine: float


BOUNDS: dict[str, Bounds] = {
    "float32": Bounds(
        largest_difference=1e-4,
        rms_difference=2.5e-5,
        label_agreement=1.0,
        metric_drop_points=0.0,
        metric_drop_deviations=0.0,
        length_difference=1e-4,
        own_difference=1e-3,
        mean_cosine=0.999_999,
    ),
    "float16": Bounds(
        largest_difference=1e-2,
        rms_difference=3e-3,
        label_agreement=0.995,
        metric_drop_points=0.1,
        metric_drop_deviations=0.0,
        length_difference=1e-4,
        own_difference=1e-3,
        mean_cosine=0.999_99,
    ),
    "dynamic_wi8": Bounds(
        largest_difference=0.6,
        rms_difference=0.15,
        label_agreement=0.97,
        metric_drop_points=0.5,
        metric_drop_deviations=2.0,
        length_difference=0.05,
        own_difference=0.1,
        mean_cosine=0.999,
    ),
    "static_wi8_ai8": Bounds(
        largest_difference=0.8,
        rms_difference=0.2,
        label_agreement=0.96,
        metric_drop_points=0.5,
        metric_drop_deviations=2.0,
        length_difference=0.05,
        own_difference=0.1,
        mean_cosine=0.998,
    ),
    "static_wi8_ai8_full": Bounds(
        largest_difference=1.2,
        rms_difference=0.3,
        label_agreement=0.94,
        metric_drop_points=0.5,
        metric_drop_deviations=2.0,
        length_difference=0.075,
        own_difference=0.15,
        mean_cosine=0.996,
    ),
    "static_wi8_ai16": Bounds(
        largest_difference=0.8,
        rms_difference=0.2,
        label_agreement=0.96,
        metric_drop_points=0.5,
        metric_drop_deviations=2.0,
        length_difference=0.05,
        own_difference=0.1,
        mean_cosine=0.998,
    ),
    "dynamic_wi4": Bounds(
        largest_difference=1.4,
        rms_difference=0.35,
        label_agreement=0.93,
        metric_drop_points=0.5,
        metric_drop_deviations=2.0,
        length_difference=0.05,
        own_difference=0.1,
        mean_cosine=0.94,
    ),
    "mixed": Bounds(
        largest_difference=1.4,
        rms_difference=0.35,
        label_agreement=0.93,
        metric_drop_points=0.5,
        metric_drop_deviations=2.0,
        length_difference=0.05,
        own_difference=0.1,
        mean_cosine=0.94,
    ),
}
