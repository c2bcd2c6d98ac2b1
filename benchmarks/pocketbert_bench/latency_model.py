"""Latency for searched networks: parts are measured on this machine, whole networks are predicted."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.feedforward import ACTIVATIONS, DIVISORS, INPUT, LINEAR, Node, WidthMismatch
from pocketbert.files import write_bytes, write_json
from pocketbert.processes import stderr_on_failure
from pocketbert.progress import bar, log_info
from pocketbert.search.folder import LATENCY_FILE, LATENCY_FOLDER
from pocketbert.search.space import SearchSpace
from pocketbert.tasks.registry import get_task
from pocketbert.training.run_folder import read_record
from pocketbert_bench.network_latency import Device, Host, RandomNetwork, Setting

# One graph has so many copies of an operation, so that it takes longer than the call itself.
_COPIES = 8
_ROUNDS = 15
# Whole networks that fit the two coefficients, and those that measure the error.
_FITTED, _CHECKED = 6, 4
_MEASUREMENTS = 3

Graph = Callable[[Any, Any], Any]


@dataclasses.dataclass(frozen=True)
class LatencyModel:
    """Predicts the latency for one text.

    latency = base + factor · (sum over the parts of all feed-forward networks).

    Attributes:
      parts: name of a part → microseconds for one text.
      base: microseconds for everything but the feed-forward networks.
      factor: ratio between a whole network and the sum over its parts.
      errors: relative prediction errors for networks outside the fit.
      last_layer_share: see `parts_us`.
    """

    parts: Mapping[str, float]
    base: float
    factor: float
    errors: Sequence[float]
    last_layer_share: float

    def predict(self, config: EncoderConfig) -> float:
        """Predicts the latency in milliseconds."""
        return (self.base + self.factor * parts_us(self.parts, config, self.last_layer_share)) / 1e3


def parts_us(parts: Mapping[str, float], config: EncoderConfig, last_layer_share: float) -> float:
    """Sums the parts of an encoder's feed-forward networks, in microseconds.

    Args:
      parts: name of a part → microseconds for one text.
      config: the encoder.
      last_layer_share: part of the tokens that the last layer computes: all for tasks that read every token, else only
        the first one, as in exported models.
    """
    assert config.feedforward is not None
    total = 0.0
    for layer in range(config.num_layers):
        expression = config.feedforward.expression(layer)
        stacked, inner_size = config.feedforward_networks(layer)
        share = last_layer_share if layer == config.num_layers - 1 else 1.0
        names = part_names(expression.tree, config.block_size, inner_size, config.feedforward.mismatch)
        total += share * stacked * sum(parts[name] for name in names)
    return total


def part_names(tree: Node, size: int, inner_size: int, mismatch: WidthMismatch) -> list[str]:
    """Names the parts in one feed-forward network; an operation on two widths computes the common features."""
    names = ["norm", f"linear {size} {inner_size}"]
    widths = iter((inner_size, size))

    def width_of(node: Node) -> int:
        if node.operation == INPUT:
            return size
        operands = [width_of(argument) for argument in node.arguments]
        if node.operation == LINEAR:
            return next(widths)
        width = min(operands)
        # The runtime computes a relu in the linear map before it.
        if node.operation != "relu" or node.arguments[0].operation != LINEAR:
            names.append(f"{node.operation} {width}")
        if max(operands) > width:
            names.append(f"slice {max(operands)} {width}")
        return width if mismatch == "truncate" else max(operands)

    width_of(tree)
    return names


def check_recipe(name: str) -> None:
    """Raises a `UserError` if networks with a recipe cannot be measured before they are trained."""
    from pocketbert.recipes import RECIPES
    from pocketbert_export.recipes import get_recipe

    # In float16, calibration texts change no operator.
    measurable = [
        recipe_name
        for recipe_name, recipe in RECIPES.items()
        if recipe.calibration == "none" or recipe.weights == "float16"
    ]
    if get_recipe(name).name not in measurable:
        raise UserError(
            f"a latency limit needs a recipe without calibration, {', '.join(measurable)}, since untrained networks "
            f"are measured; received {name}; search with dynamic_wi8 and export with your recipe"
        )


@dataclasses.dataclass(kw_only=True)
class LatencyConstraint:
    """Limits the latency on a device, with one thread.

    Attributes:
      limit: milliseconds for one text.
      setting: the exported network's task, recipe and length.
      device: the device.
      model: the fitted model, made by `prepare`.
    Raises:
      UserError: files with the recipe need calibration.
    """

    limit: float
    setting: Setting
    device: Device = dataclasses.field(default_factory=Host)
    model: LatencyModel | None = None
    name = "latency_ms"
    minimum = 0.0

    def __post_init__(self) -> None:
        check_recipe(self.setting.recipe)

    def cost(self, config: EncoderConfig) -> float:
        """Predicts milliseconds for one text."""
        assert self.model is not None
        return self.model.predict(config)

    def describe(self, cost: float) -> str:
        """Describes the latency with its unit and the settings."""
        return f"{cost:.6g} ms {self._where}"

    @property
    def _where(self) -> str:
        where = f" on {self.device.name}" if self.device.name else ""
        return f"with {self.setting.recipe} at {self.setting.length} tokens{where}"

    def prepare(self, folder: Path, space: SearchSpace) -> None:
        """Measures parts and whole networks, or reads an earlier attempt's measurements.

        Args:
          folder: the search's folder; receives `latency.json`, and `latency/` until the measurements are complete.
          space: the first stage's space.
        """
        path = folder / LATENCY_FILE
        if not path.exists():
            self.device.check()
            stored = folder / LATENCY_FOLDER
            write_json(path, dataclasses.asdict(fit(space, self.setting, self.device, stored)))
            shutil.rmtree(stored, ignore_errors=True)
        names = [field.name for field in dataclasses.fields(LatencyModel)]
        self.model = LatencyModel(**read_record(path, names))
        log_info(
            f"latency {self._where}: median error "
            f"{100 * statistics.median(self.model.errors):.1f} %, largest {100 * max(self.model.errors):.1f} %, on "
            f"{len(self.model.errors)} networks outside the fit"
        )


def fit(space: SearchSpace, setting: Setting, device: Device, folder: Path, seed: int = 0) -> LatencyModel:
    """Measures a search space's parts on this machine, and fits whole networks on a device to them.

    Args:
      space: the space; its constraints are not used.
      setting: the networks' task, recipe and length.
      device: runs the whole networks.
      folder: keeps an interrupted call's measurements on the device.
      seed: seed for the random networks.
    """
    free = dataclasses.replace(space, stage=1, winner=(), constraints=())
    random = np.random.default_rng(seed)
    count = _FITTED + _CHECKED - 2
    # The cheapest and the dearest network span the range.
    ends = [(f"linear{shape}(gelu(linear{shape}(x)))",) * free.num_layers for shape in ("1_4", "4_1")]
    configs = [free.config(genotype) for genotype in (*ends, *(free.sample(random) for _ in range(count)))]
    with tempfile.TemporaryDirectory() as temporary:
        parts = _measure_parts(Path(temporary), free.encoder, setting.recipe, setting.length)
    networks = [RandomNetwork(config, setting.task) for config in configs]
    whole = np.array([cost.latency_us[-1] for cost in device.measure(networks, setting, folder)])
    share = 1 / setting.length if get_task(setting.task).first_token_only else 1.0
    sums = np.array([parts_us(parts, config, share) for config in configs])
    # Relative errors count, so that cheap networks fit as well as dear ones.
    design = np.stack([np.ones(_FITTED), sums[:_FITTED]], 1) / whole[:_FITTED, None]
    base, factor = np.linalg.lstsq(design, np.ones(_FITTED), rcond=None)[0]
    errors = np.abs(base + factor * sums[_FITTED:] - whole[_FITTED:]) / whole[_FITTED:]
    return LatencyModel(parts, float(base), float(factor), errors.tolist(), share)


def _measure_parts(folder: Path, encoder: EncoderConfig, recipe: str, length: int) -> dict[str, float]:
    """Microseconds for every part of a search space's feed-forward networks."""
    from pocketbert_bench.configurations import Call, Configuration
    from pocketbert_bench.host import Worker

    size = encoder.block_size
    inner = sorted({encoder.intermediate_size // divisor for divisor in DIVISORS}, reverse=True)
    parts = _Parts(size, inner)
    path = folder / "parts.tflite"
    write_bytes(path, parts.convert(recipe, length))
    ids = [number % 7 for number in range(length)]
    calls = [Call(signature=name, inputs={"ids": ids}, expected=None) for name in parts.signatures.values()]
    numbers = list(range(len(calls)))
    random = np.random.default_rng(0)
    samples: list[list[float]] = [[] for _ in numbers]
    configuration = Configuration(
        label="parts", model="parts", recipe=recipe, model_path=path, length=length, threads=1, calls=tuple(calls)
    )
    with Worker(configuration) as worker, bar(_ROUNDS, "measuring operations", "round") as progress:
        worker.run(numbers * 3)
        for _ in range(_ROUNDS):
            # The first call of each part refills the caches.
            order = [int(number) for number in random.permutation(numbers) for _ in range(_MEASUREMENTS + 1)]
            for position, (number, value) in enumerate(zip(order, worker.run(order), strict=True)):
                if position % (_MEASUREMENTS + 1):
                    samples[number].append(value)
            progress.update()
    medians = dict(zip(parts.signatures, (statistics.median(sample) for sample in samples), strict=True))
    return {
        name: max((medians[name] - medians[base]) / _COPIES, 0.0) for name, base in parts.bases.items() if name != base
    }


class _Parts:
    """A graph per part: copies of an operation between look-ups of ids and one number as output."""

    def __init__(self, size: int, inner_sizes: Sequence[int]) -> None:
        from pocketbert.layers.core import Dense, LayerNorm, feedforward_operations

        self._graphs: dict[str, tuple[int, Graph]] = {}
        self._layers: list[Any] = []
        # Name → graph whose time is subtracted.
        self.bases: dict[str, str] = {}
        operations = feedforward_operations("truncate")
        for width in sorted({size, *inner_sizes}):
            self._add(f"base {width}", width, lambda x, _: x)
            self._add(f"add {width}", width, operations["add"], f"base {width}")
            for name in ("mul", "max"):
                self._add(f"{name} {width}", width, operations[name], f"base {width}")
            for name in ACTIVATIONS:
                self._add(f"{name} {width}", width, _after_addition(operations[name]), f"add {width}")
        for narrow in inner_sizes:
            if narrow != size:
                wide, cut = max(size, narrow), min(size, narrow)
                self._add(f"slice {wide} {cut}", wide, _cut(cut), f"add {wide}")
            first, second = Dense(size, narrow), Dense(narrow, size)
            for layer in (first, second):
                layer.kernel.assign(np.random.default_rng(narrow).normal(0, 0.05, layer.kernel.shape))
            name = f"linear {size} {narrow}"
            self._add(name, size, _linears(first, second), f"base {size}", (first, second))
        norm = LayerNorm(size, 1e-12)
        self._add("norm", size, _after_addition(norm), f"base {size}", (norm,))

    @property
    def signatures(self) -> dict[str, str]:
        """Name of a part → name of its signature."""
        return {name: name.replace(" ", "_") for name in self._graphs}

    def _add(self, name: str, width: int, graph: Graph, base: str = "", layers: Sequence[Any] = ()) -> None:
        self._graphs[name] = width, graph
        self.bases[name] = base or name
        self._layers += layers

    def convert(self, recipe: str, length: int) -> bytes:
        """Converts all parts to one file with a signature each."""
        import tensorflow as tf

        from pocketbert_export.recipes import configure, get_recipe

        module = tf.Module()
        module.layers = self._layers
        module.tables = {}
        functions = {}
        for name, (width, graph) in self._graphs.items():
            if str(width) not in module.tables:
                values = np.random.default_rng(width).normal(0, 1, [7, width])
                module.tables[str(width)] = tf.Variable(values, dtype=tf.float32)
            functions[self.signatures[name]] = tf.function(
                _part(module.tables[str(width)], graph),
                input_signature=[tf.TensorSpec([1, length], tf.int32, name="ids")],
            ).get_concrete_function()
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder, signatures=functions)
            converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=list(functions))
            configure(converter, get_recipe(recipe))
            # The converter writes C++ warnings about options that it ignores.
            with stderr_on_failure():
                content: bytes = converter.convert()
        return content


def _part(table: Any, graph: Graph) -> Callable[[Any], dict[str, Any]]:
    """One part's graph, for ids [1, length]."""
    import tensorflow as tf

    def compute(ids: Any) -> dict[str, Any]:
        x, y = tf.gather(table, ids), tf.gather(table, ids[:, ::-1])
        for _ in range(_COPIES):
            x = graph(x, y)
        return {"value": x[:, 0, :1]}

    return compute


def _after_addition(operation: Callable[[Any], Any]) -> Graph:
    """Puts an addition between equal operations, so that the converter cannot merge them."""
    return lambda x, y: operation(x + y)


def _linears(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Graph:
    return lambda x, _: second(first(x))


def _cut(width: int) -> Graph:
    """Cuts both operands of an addition, and joins the result with the other features."""
    import tensorflow as tf

    return lambda x, y: tf.concat([x[..., :width] + y[..., :width], x[..., width:]], axis=-1)
