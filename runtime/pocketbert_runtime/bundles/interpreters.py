"""LiteRT interpreters of one file, for several threads."""

from __future__ import annotations

import contextlib
import queue
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pocketbert_runtime.errors import UserError


class _Runs(Protocol):
    """A file that is loaded; one call at a time."""

    def runner(self, signature: str) -> Any:
        """Returns a signature's call: inputs by name → outputs by name."""


class Interpreters:
    """Interpreters of one file, made when first needed. An interpreter does one text at a time.

    Threads can share this object: each call borrows an interpreter, and waits while all are at work.

    Args:
      model: the file, as arguments of LiteRT's `Interpreter`.
      count: largest number of interpreters.
      weight_cache: whether all lengths share packed weights, in a temporary file, with one interpreter. The outputs
        must be float32.
    """

    def __init__(self, model: Mapping[str, Any], count: int, *, weight_cache: bool = False) -> None:
        self._model: Mapping[str, Any] | None = model
        # The last one returned comes first, so that one thread makes one interpreter.
        self._free: queue.LifoQueue[_Runs | None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._make: Callable[[Mapping[str, Any]], _Runs] = _CachedModels() if weight_cache else _Interpreter

    @contextlib.contextmanager
    def runner(self, signature: str) -> Iterator[Any]:
        """Yields the runner of a signature.

        Raises:
          UserError: the bundle was closed.
          ValueError: LiteRT refuses the file or the signature.
        """
        interpreter = self._free.get()
        try:
            model = self.require_open()
            if interpreter is None:
                interpreter = self._make(model)
            yield interpreter.runner(signature)
        finally:
            self._free.put(None if self._model is None else interpreter)

    def require_open(self) -> Mapping[str, Any]:
        """Returns the file; raises a `UserError` if the bundle was closed."""
        model = self._model
        if model is None:
            raise UserError("a bundle must be open to answer; received a closed one; open it again")
        return model

    def close(self) -> None:
        """Drops all interpreters; those at work finish their text. Calls after this raise a `UserError`."""
        self._model = None
        dropped = 0
        with contextlib.suppress(queue.Empty):
            while True:
                self._free.get_nowait()
                dropped += 1
        for _ in range(dropped):
            self._free.put(None)
        if isinstance(self._make, _CachedModels):
            self._make.close()


class _Interpreter:
    """LiteRT's interpreter."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        from ai_edge_litert.interpreter import Interpreter

        # A runner does not keep its interpreter.
        self._interpreter = Interpreter(**model, num_threads=1)
        self._runners: dict[str, Any] = {}

    def runner(self, signature: str) -> Any:
        if signature not in self._runners:
            self._runners[signature] = self._interpreter.get_signature_runner(signature)
        return self._runners[signature]


class _CachedModels:
    """Makes LiteRT's CompiledModel with a weight cache; LiteRT's interpreter has no option for it.

    XNNPACK trusts the content of a cache. So this one is private: the model writes it, into a temporary folder.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pocketbert-", ignore_cleanup_errors=True)

    def __call__(self, model: Mapping[str, Any]) -> _Runs:
        return _CompiledModel(model, Path(self._folder.name, "weights.xnnpack"))

    def close(self) -> None:
        """Removes the cache; a model at work has it mapped."""
        self._folder.cleanup()


class _CompiledModel:
    """LiteRT's CompiledModel, with a runner for each signature."""

    def __init__(self, model: Mapping[str, Any], cache: Path) -> None:
        from ai_edge_litert.compiled_model import CompiledModel, CpuOptions, HardwareAccelerator, Options

        cpu = CpuOptions(num_threads=1, xnnpack_weight_cache_path=str(cache))
        options = Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=cpu)
        if "model_path" in model:
            self._model = CompiledModel.from_file(model["model_path"], options=options)
        else:
            self._model = CompiledModel.from_buffer(model["model_content"], options=options)
        self._runners: dict[str, Callable[..., dict[str, np.ndarray]]] = {}

    def runner(self, signature: str) -> Callable[..., dict[str, np.ndarray]]:
        if signature not in self._runners:
            self._runners[signature] = self._made(signature)
        return self._runners[signature]

    def _made(self, signature: str) -> Callable[..., dict[str, np.ndarray]]:
        model, names = self._model, self._model.get_signature_list()[signature]
        sources = {name: model.create_input_buffer_by_name(signature, name) for name in names["inputs"]}
        targets = {name: model.create_output_buffer_by_name(signature, name) for name in names["outputs"]}
        details = model.get_output_tensor_details(signature)
        shapes = {name: tuple(detail["shape"]) for name, detail in details.items()}

        def call(**inputs: np.ndarray) -> dict[str, np.ndarray]:
            for name, array in inputs.items():
                sources[name].write(array)
            model.run_by_name(signature, sources, targets)
            return {
                name: target.read(int(np.prod(shapes[name])), np.float32).reshape(shapes[name])
                for name, target in targets.items()
            }

        return call
