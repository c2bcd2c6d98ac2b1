"""How long MobileBERT's pretraining takes at the paper's full size, and what fits into an accelerator's memory.

Sun et al. 2020 (MobileBERT), section 4.2, https://arxiv.org/abs/2004.02984: the teacher takes 500,000 steps of 4,096
examples on 256 TPU v3 chips, progressive transfer 240,000 steps, distillation as many as the teacher. The paper gives
no batch for the transfer; 2,048 is the authors' code's. Nothing here was measured on an accelerator: hours are
arithmetic on `costs.encoder_flops`, published peaks and an assumed utilization. Nothing imports TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pocketbert.configs import EncoderConfig
from pocketbert.costs import encoder_flops
from pocketbert.presets import preset

TEACHER = "ib_bert_large"
STUDENT = "mobilebert_paper"
LENGTHS = (128, 512)
GIB = 2**30
# Forward once; backward twice, for the gradients of inputs and of weights.
TRAINING_PASSES = 3
# Bytes a parameter that learns: float32 weight, gradient, sum of micro-batches' gradients, two moments; bfloat16 copy.
TRAINED_BYTES = 4 + 4 + 4 + 8 + 2
# One that does not: float32 weight and bfloat16 copy.
FROZEN_BYTES = 4 + 2
ACTIVATION_BYTES = 2
# Logits over the vocabulary are float32: logits, probabilities and gradient.
LOGIT_BYTES = 3 * 4
# Of an activation's width, its output, which the next map reads, included: gelu's formulas are several operations.
_ACTIVATION_ARRAYS = {"relu": 1, "gelu": 4, "gelu_tanh": 5}
# Of the memory; the rest is for the runtime, for fragments and for what a single operation needs beside its result.
USABLE = 0.85


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """Devices that train together, a replica each.

    Attributes:
      name: what they are.
      devices: how many.
      peak_flops: of one, floating-point operations a second in bfloat16, dense, as its maker says.
      memory_bytes: of one.
      distribution: the command line's word for it.
    """

    name: str
    devices: int
    peak_flops: float
    memory_bytes: float
    distribution: str


# A TPU v3 chip has two cores with 16 GiB each, which are two replicas.
ACCELERATORS = (
    Accelerator(name="256 TPU v3 chips", devices=512, peak_flops=61.5e12, memory_bytes=16 * GIB, distribution="tpu"),
    Accelerator(name="256 TPU v4 chips", devices=256, peak_flops=275e12, memory_bytes=32 * GIB, distribution="tpu"),
    Accelerator(name="8 A100 80 GB", devices=8, peak_flops=312e12, memory_bytes=80e9, distribution="mirrored"),
    Accelerator(name="8 H100 80 GB", devices=8, peak_flops=989e12, memory_bytes=80e9, distribution="mirrored"),
)


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """The part of the peak that is assumed to be reached; hours are inversely proportional to it.

    Attributes:
      teacher: in IB-BERT's products, which are 512 to 4,096 wide.
      student: in MobileBERT's, which are 128 and 512 wide, with as many elementwise operations beside them.
    """

    teacher: float = 0.3
    student: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the full run.

    Attributes:
      name: what it is.
      steps: updates.
      batch_size: examples an update.
      teacher_flops: the teacher's operations in one example of a length.
      student_flops: the student's.
      trained: preset of what learns.
      frozen: preset of what is only run forward, or None.
    """

    name: str
    steps: int
    batch_size: int
    teacher_flops: Callable[[int], float]
    student_flops: Callable[[int], float]
    trained: str
    frozen: str | None

    def hours(self, accelerator: Accelerator, length: int, utilization: Utilization) -> float:
        """Expected hours of the whole phase."""
        peak = accelerator.devices * accelerator.peak_flops
        seconds = self.teacher_flops(length) / utilization.teacher + self.student_flops(length) / utilization.student
        return self.steps * self.batch_size * seconds / peak / 3600


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What of a phase fits into a device.

    Attributes:
      micro_batch: examples that a device computes at once, the largest power of two that fits.
      micro_batches: parts that a device's share of a batch is computed in.
      used_bytes: of a device's memory.
    """

    micro_batch: int
    micro_batches: int
    used_bytes: float


def masked_positions(length: int) -> int:
    """BERT's 15 % of the tokens, rounded up."""
    return math.ceil(0.15 * length)


def head_flops(config: EncoderConfig, length: int) -> int:
    """Operations of the masked-LM head in one example: a square map, then the vocabulary, at the masked positions."""
    return 2 * masked_positions(length) * config.hidden_size * (config.hidden_size + config.vocab_size)


def progressive_flops(config: EncoderConfig, length: int, *, learns: bool) -> float:
    """Operations in one example of a network in progressive transfer, a mean over its stages.

    Stage l computes no layer above l; with the layers below frozen, the backward pass is that of layer l.

    Args:
      config: the network's architecture.
      length: tokens.
      learns: whether there is a backward pass.
    """
    bare = config.replace(pooler="none")
    up_to = [encoder_flops(bare.replace(num_layers=layers), length) for layers in range(1, config.num_layers + 1)]
    forward = sum(up_to) / len(up_to)
    one_layer = up_to[1] - up_to[0]
    return forward + (TRAINING_PASSES - 1) * one_layer * learns


def phases() -> tuple[Phase, ...]:
    """The paper's run: the teacher, transfer (progressive, and joint for comparison) and distillation."""
    teacher, student = preset(TEACHER).config, preset(STUDENT).config

    def forward(config: EncoderConfig, length: int) -> float:
        return encoder_flops(config, length) + head_flops(config, length)

    return (
        Phase(
            name="teacher",
            steps=500_000,
            batch_size=4096,
            teacher_flops=lambda length: TRAINING_PASSES * forward(teacher, length),
            student_flops=lambda length: 0.0,
            trained=TEACHER,
            frozen=None,
        ),
        Phase(
            name="progressive transfer",
            steps=240_000,
            batch_size=2048,
            teacher_flops=lambda length: progressive_flops(teacher, length, learns=False),
            student_flops=lambda length: progressive_flops(student, length, learns=True),
            trained=STUDENT,
            frozen=TEACHER,
        ),
        Phase(
            name="joint transfer, instead",
            steps=240_000,
            batch_size=2048,
            teacher_flops=lambda length: encoder_flops(teacher, length),
            student_flops=lambda length: TRAINING_PASSES * encoder_flops(student, length),
            trained=STUDENT,
            frozen=TEACHER,
        ),
        Phase(
            name="distillation",
            steps=500_000,
            batch_size=4096,
            teacher_flops=lambda length: forward(teacher, length),
            student_flops=lambda length: TRAINING_PASSES * forward(student, length),
            trained=STUDENT,
            frozen=TEACHER,
        ),
    )


def parameters(name: str) -> int:
    """Weights of a preset with the masked-LM head: its square map, the vocabulary's extra columns and biases."""
    config = preset(name).config
    hidden, vocabulary = config.hidden_size, config.vocab_size
    head = hidden * hidden + 3 * hidden + vocabulary * (hidden - config.embedding_size) + vocabulary
    return preset(name).parameters + head


def layer_values(config: EncoderConfig, length: int, *, dropout: bool) -> int:
    """Numbers of one layer and one example that live from the forward to the backward pass.

    As TensorFlow's graph has them: the input of every linear map; queries, keys and values, split into
    heads, and the attention probabilities; of an activation and of a norm what `_ACTIVATION_ARRAYS` and the first lines
    below say. A compiler that fuses operations may keep fewer.

    Args:
      config: the architecture, with a bottleneck.
      length: tokens.
      dropout: whether it is active; each keeps its mask, and attention's its result.
    """
    assert config.bottleneck is not None
    hidden, block, attention = config.hidden_size, config.block_size, config.attention_size

    def norm(size: int) -> int:
        # LayerNorm: the centred and the normalized values and one deviation; NoNorm: its input.
        return 2 * size + 1 if config.norm == "layer_norm" else size

    feed_forward = _ACTIVATION_ARRAYS[config.activation] * config.intermediate_size + norm(block) + block
    per_token = hidden + norm(block) + 4 * attention + config.num_attention_heads * length + norm(block) + block
    per_token += config.num_feed_forwards * feed_forward + norm(hidden)
    # What queries and keys are made from, where that is not the block's input.
    per_token += {"raw": 0, "shared": norm(block) + block, "bottleneck": block}[config.bottleneck.query_key]
    if dropout:
        per_token += 2 * config.num_attention_heads * length * (config.attention_dropout > 0)
        per_token += hidden * (config.hidden_dropout > 0)
    return length * per_token


def activation_bytes(config: EncoderConfig, length: int, *, dropout: bool) -> float:
    """Bytes of activations of one example in training: the layers', and the logits over the vocabulary."""
    logits = masked_positions(length) * config.vocab_size * LOGIT_BYTES
    return config.num_layers * layer_values(config, length, dropout=dropout) * ACTIVATION_BYTES + logits


def weight_bytes(phase: Phase) -> float:
    """Bytes of weights and of all that there is once a weight, on every device."""
    frozen = parameters(phase.frozen) * FROZEN_BYTES if phase.frozen else 0
    return parameters(phase.trained) * TRAINED_BYTES + frozen


def example_bytes(phase: Phase, length: int) -> float:
    """Bytes of one example: activations of what learns; of its teacher one layer's, and what the losses of all hold.

    A network without a teacher has dropout; the authors' code trains a student without.
    """
    found = activation_bytes(preset(phase.trained).config, length, dropout=phase.frozen is None)
    if phase.frozen:
        teacher = preset(phase.frozen).config
        # Losses are computed in float32.
        found += layer_values(teacher, length, dropout=False) * ACTIVATION_BYTES + transfer_values(teacher, length) * 4
    return found


def fit(phase: Phase, accelerator: Accelerator, length: int) -> Fit:
    """The largest micro-batch of a phase that fits, and what it takes."""
    weights, example = weight_bytes(phase), example_bytes(phase, length)
    share = phase.batch_size // accelerator.devices
    room = USABLE * accelerator.memory_bytes - weights
    micro_batch = min(share, 2 ** math.floor(math.log2(room / example)))
    return Fit(micro_batch=micro_batch, micro_batches=share // micro_batch, used_bytes=weights + micro_batch * example)


def transfer_values(config: EncoderConfig, length: int) -> int:
    """Numbers of one example that the losses of all layers hold: a feature map and the attention of all heads each."""
    return config.num_layers * (length * config.hidden_size + config.num_attention_heads * length**2)
