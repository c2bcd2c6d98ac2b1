"""One training step for a learning supernet: one candidate per step, with shared weights (search stage 3).

A candidate has stacks and a divisor per layer; each layer's operations are fixed. There are 16^layers candidates, so
none is traced as a whole. Each layer has one graph per stacks and divisor, made on first use, under one eager tape.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.encoder import complete_inputs, resolve_request
from pocketbert.errors import UserError, raise_if_any
from pocketbert.feedforward import width_problems
from pocketbert.layers.attention import ATTENTION_FEATURES
from pocketbert.layers.core import affine
from pocketbert.model import Model
from pocketbert.search.sliced_adamw import SlicedAdamW
from pocketbert.search.space import SHAPES, Shape
from pocketbert.training.gradients import dense
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import FeatureRequest, all_trainable
from pocketbert.training.step import adapter_variables

# The candidate's features, batch and targets → losses, float32 [terms]; the first is minimized.
Losses: TypeAlias = Callable[[Features, Batch, Targets], tf.Tensor]
_NETWORK = re.compile(r"encoder\.layers\.(\d+)\.feed_forwards\.(\d+)\.(.*)")
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
# Weights cut by a ratio → axis of the inner columns.
_CUT = {"intermediate.kernel": 1, "intermediate.bias": 0, "output.kernel": 0}


@functools.lru_cache(maxsize=16)
def possible_shapes(supernet: EncoderConfig) -> list[list[Shape]]:
    """Lists each layer's stacks and divisors within the supernet, with widths that match the layer's operations.

    Raises:
      UserError: the supernet has no expressions.
    """
    if supernet.feedforward is None:
        raise UserError("a supernet needs feed-forward expressions; received none; make it with supernet_config")
    possible = []
    for layer in range(supernet.num_layers):
        expression, size = supernet.feedforward.expression(layer), supernet.intermediate_size
        mismatch = supernet.feedforward.mismatch
        possible.append(
            [
                (stacks, divisor)
                for stacks, divisor in SHAPES
                if stacks <= expression.stacks
                and divisor >= expression.divisor
                and size // divisor
                and not width_problems(expression.tree, supernet.block_size, size // divisor, mismatch)
            ]
        )
    return possible


def draw_shapes(supernet: EncoderConfig, seed: int, step: int) -> tuple[Shape, ...]:
    """Draws a step's candidate, uniformly from all.

    Only seed and step matter, so resumed runs and all replicas draw the same candidates.
    """
    random = np.random.default_rng((seed, step))
    return tuple(shapes[random.integers(len(shapes))] for shapes in possible_shapes(supernet))


def sliced_axes(model: Model) -> dict[str, int]:
    """Name → axis for the weights cut by a ratio, for `SlicedAdamW`."""
    names = {variable.ref(): name for name, variable in model.named_variables().items()}
    axes = {}
    for path, variable in model.weights_by_path().items():
        match = _NETWORK.match(path)
        if match and match[3] in _CUT:
            axes[names[variable.ref()]] = _CUT[match[3]]
    return axes


class SupernetStep:
    """Trains one candidate's slices of a supernet.

    A step changes these weights and their moments as in the standalone candidate. All others keep their bits. Each
    batch may belong to another head.

    Runs on one replica, because the tape is eager.

    Args:
      model: the supernet, with one head per task.
      optimizer: its optimizer, with `sliced_axes(model)`; built here.
      losses: head name → losses for its batches; the name is empty for batches without a head.
      request: features for the losses; `logits` are from the batch's head.
      adapters: trained layers in the losses.
      trainable: weight name → whether to train it.
      dropout: whether dropout is active.
    """

    def __init__(
        self,
        model: Model,
        optimizer: SlicedAdamW,
        losses: Mapping[str, Losses],
        request: FeatureRequest,
        *,
        adapters: Adapters | None = None,
        trainable: Callable[[str], bool] = all_trainable,
        dropout: bool = True,
    ) -> None:
        top = model.config.num_layers
        self.model, self.optimizer = model, optimizer
        self._losses, self._dropout = dict(losses), dropout
        self._requested = {name: layers for name, layers in request.items() if name != "logits"}
        self._reads_logits = "logits" in request
        hidden = tuple(self._requested.get("hidden_states", ()))
        computed = {**self._requested, "hidden_states": (*hidden, top)} if self._reads_logits else self._requested
        self._computed = resolve_request(computed, top)
        self._check(model)
        self._shapes = [set(shapes) for shapes in possible_shapes(model.config)]
        names = {variable.ref(): name for name, variable in model.named_variables().items()}
        paths = {path: names[variable.ref()] for path, variable in model.weights_by_path().items()}
        self._variables = {**model.named_variables(), **adapter_variables(adapters or {})}
        self._trained = {name: value for name, value in self._variables.items() if trainable(name)}
        # Layer, network and part → name.
        self._cut: dict[tuple[int, int, str], str] = {}
        # One graph updates one layer's weights, another all other weights.
        self._groups: dict[str, int] = {}
        for path, name in paths.items():
            if (match := _NETWORK.match(path)) and match[3] in _CUT:
                self._cut[int(match[1]), int(match[2]), match[3]] = name
            if match := _LAYER.match(path):
                self._groups[name] = int(match[1])
        cut = set(self._cut.values())
        self._whole = {name: value for name, value in self._trained.items() if name not in cut}
        optimizer.bind(self._variables)
        optimizer.build(list(self._trained.values()))
        self._graphs: dict[Any, Any] = {}

    def __call__(
        self, shapes: Sequence[Shape], batch: Batch, targets: Targets | None = None, head: str = ""
    ) -> tf.Tensor:
        """Takes one step; returns the losses, float32 [terms].

        Raises:
          UserError: the supernet does not contain the candidate, or there are no losses for the head.
        """
        problems = [
            f"layer {layer} must be one of {len(possible)} shapes of the supernet; received {shape}"
            for layer, (shape, possible) in enumerate(zip(shapes, self._shapes, strict=False), 1)
            if tuple(shape) not in possible
        ]
        if len(shapes) != len(self._shapes):
            problems.append(f"a candidate has {len(self._shapes)} layers; received {len(shapes)}")
        if head not in self._losses:
            problems.append(f"a batch must name one of the heads {', '.join(self._losses)}; received {head!r}")
        raise_if_any(problems, "supernet step")
        batch = complete_inputs(batch)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            slices = self._slices(shapes)
            trained = {name: value for name, value in slices.items() if name in self._trained}
            sources = {**self._whole, **trained}
            tape.watch(list(sources.values()))
            features, top = self._features(shapes, slices, batch)
            losses = self._graph(("losses", head), lambda: self._of_head(head))(
                features, top, batch, dict(targets or {})
            )
            loss = losses[0]
        gradients = tape.gradient(loss, list(sources.values()))
        reached = {name: gradient for name, gradient in zip(sources, gradients, strict=True) if gradient is not None}
        self._update(reached)
        return losses

    @property
    def num_graphs(self) -> int:
        """Functions made so far."""
        return len(self._graphs)

    def _check(self, model: Model) -> None:
        unknown = sorted(set(self._losses) - {"", *model.heads})
        if unknown:
            raise UserError(f"losses must be for heads of the supernet, {', '.join(model.heads)}; received {unknown}")
        if self._reads_logits and "" in self._losses:
            raise UserError("logits need a head; received losses for batches without one; name the head")

    def _graph(self, key: Any, make: Callable[[], Callable[..., Any]]) -> Any:
        if key not in self._graphs:
            function = tf.autograph.experimental.do_not_convert(make())
            # TensorFlow counts traces by code and would warn about different functions with the same code; a partial
            # has no code of its own.
            self._graphs[key] = tf.function(functools.partial(function), autograph=False, reduce_retracing=True)
        return self._graphs[key]

    def _slices(self, shapes: Sequence[Shape]) -> dict[str, tf.Tensor]:
        """Slices the candidate's cut weights, by name. Their gradients have their shapes."""
        slices = {}
        for (layer, network, part), name in self._cut.items():
            stacks, divisor = shapes[layer]
            if network < stacks:
                width = self.model.config.intermediate_size // divisor
                variable = self._variables[name]
                slices[name] = variable[:, :width] if _CUT[part] else variable[:width]
        return slices

    def _features(
        self, shapes: Sequence[Shape], slices: Mapping[str, tf.Tensor], batch: Batch
    ) -> tuple[dict[str, list[tf.Tensor]], tf.Tensor]:
        """Returns the requested features without logits, and the last feature map."""
        x, bias = self._graph("embedding", lambda: self._embedded)(batch)
        computed: dict[tuple[str, int], tf.Tensor] = {("hidden_states", 0): x}
        for layer, (stacks, divisor) in enumerate(shapes[: self._computed.highest]):
            weights = [tuple(slices[self._cut[layer, network, part]] for part in _CUT) for network in range(stacks)]
            run = self._graph((layer, stacks, divisor), functools.partial(self._layer, layer))
            x, features = run(x, bias, weights)
            computed[("hidden_states", layer + 1)] = x
            computed.update({(name, layer + 1): value for name, value in features.items()})
        layers_by_name = {name: self._computed.layers[name] for name in self._requested}
        if self._reads_logits and "hidden_states" in layers_by_name:
            layers_by_name["hidden_states"] = layers_by_name["hidden_states"][:-1]
        return {name: [computed[(name, layer)] for layer in layers] for name, layers in layers_by_name.items()}, x

    def _embedded(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        return self.model.encoder.embedded(batch, training=self._dropout)

    def _layer(self, layer: int) -> Callable[..., Any]:
        """Makes a layer's function: input, mask and its networks' weights → output and features."""
        block: Any = self.model.encoder.layers_[layer]
        computed = self._computed
        names = [name for name in ATTENTION_FEATURES if layer + 1 in computed.layers.get(name, ())]

        def run(x: tf.Tensor, bias: tf.Tensor, weights: Sequence[tuple[tf.Tensor, ...]]) -> Any:
            networks = [
                functools.partial(network, linears=_linears(network, *parts))
                for network, parts in zip(block.feed_forwards, weights, strict=False)
            ]
            return block(
                x,
                bias,
                wanted=names,
                attention_only=layer + 1 > computed.highest_hidden,
                training=self._dropout,
                feed_forwards=networks,
            )

        return run

    def _of_head(self, head: str) -> Callable[..., tf.Tensor]:
        """Makes a head's function: features, last feature map, batch and targets → losses."""

        def run(features: Any, top: tf.Tensor, batch: Batch, targets: Targets) -> tf.Tensor:
            if self._reads_logits:
                encoded = self.model.encoder.pooled(top)
                outputs = self.model.head_outputs(encoded, batch, self._dropout, (head,))
                features = {**features, "logits": list(outputs.values())}
            return self._losses[head](features, batch, targets)

        return run

    def _update(self, gradients: Mapping[str, Any]) -> None:
        groups: dict[int, dict[str, Any]] = {}
        for name, gradient in gradients.items():
            groups.setdefault(self._groups.get(name, -1), {})[name] = gradient
        clip_norm, scale = self.optimizer.clip_norm, tf.constant(1.0)
        keys = [tuple((name, tuple(gradient.shape)) for name, gradient in group.items()) for group in groups.values()]
        gradients_of_groups = [list(group.values()) for group in groups.values()]
        if clip_norm is not None:
            # As `training.gradients.dense_and_clipped`, over all graphs.
            results = [
                self._graph(("norm", key), lambda: _dense_and_loss)(group)
                for key, group in zip(keys, gradients_of_groups, strict=True)
            ]
            gradients_of_groups = [result[0] for result in results]
            norm = tf.sqrt(2.0 * tf.add_n([result[1] for result in results]))
            scale = clip_norm / tf.maximum(norm, clip_norm)
        self.optimizer.begin_step()
        for key, group in zip(keys, gradients_of_groups, strict=True):
            self._graph(("update", key), functools.partial(self._updater, [name for name, _ in key]))(group, scale)
        self.optimizer.end_step()

    def _updater(self, names: Sequence[str]) -> Callable[..., None]:
        def run(gradients: Sequence[Any], scale: tf.Tensor) -> None:
            for name, gradient in zip(names, gradients, strict=True):
                self.optimizer.update_step(dense(gradient) * scale, self._trained[name])

        return run


def _linears(network: Any, kernel: tf.Tensor, bias: tf.Tensor, output_kernel: tf.Tensor) -> Any:
    """A network's two linear maps with sliced weights."""

    def intermediate(x: tf.Tensor) -> tf.Tensor:
        return affine(x, tf.cast(kernel, x.dtype), tf.cast(bias, x.dtype))

    def output(x: tf.Tensor) -> tf.Tensor:
        return affine(x, tf.cast(output_kernel, x.dtype), network.output_projection.bias)

    return intermediate, output


def _dense_and_loss(gradients: Sequence[Any]) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns dense gradients and half the sum of their squares."""
    dense_gradients = [dense(gradient) for gradient in gradients]
    return dense_gradients, tf.add_n([tf.nn.l2_loss(gradient) for gradient in dense_gradients])
