"""PocketBERT: compress a fine-tuned BERT into a small, verified TFLite model, and measure it.

Each public name is imported on first use, so `import pocketbert` takes no time.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# First, because it checks what all others import.
from pocketbert._runtime import __version__ as __version__

# `presets` names a function and its module; imported here, first, the function keeps the name.
from pocketbert.presets import presets

# tf-models-official and tfmot need Keras 2; this must be set before TensorFlow is imported (ADR 1).
os.environ["TF_USE_LEGACY_KERAS"] = "1"

if TYPE_CHECKING:
    from pocketbert import data
    from pocketbert.checkpoints.vocabulary_extension import extend_vocabulary
    from pocketbert.configs import BottleneckConfig, EncoderConfig, TaskConfig
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.data.task_data import TaskData, TextData
    from pocketbert.distillation.initialization import SupernetSlices, TeacherLayers
    from pocketbert.distillation.methods.efficientbert import EfficientBERT
    from pocketbert.distillation.methods.hsk import HSK
    from pocketbert.distillation.methods.minilmv2 import MiniLMv2
    from pocketbert.distillation.methods.mobilebert import MobileBERT
    from pocketbert.distillation.methods.tinybert import TinyBERT
    from pocketbert.distillation.run import distill
    from pocketbert.encoder import Encoder, FeatureRequest
    from pocketbert.errors import UserError
    from pocketbert.model import Model, from_preset, from_pretrained
    from pocketbert.pruning.config import PruneConfig
    from pocketbert.pruning.new_words import extend_vocabulary_from_text
    from pocketbert.pruning.run import prune
    from pocketbert.pruning.vocabulary import trim_vocabulary
    from pocketbert.tokenizers.byte_bpe import ByteBPETokenizer
    from pocketbert.tokenizers.unigram import UnigramTokenizer
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
    from pocketbert.training.config import FinetuneConfig, RunConfig
    from pocketbert.training.finetune import finetune
    from pocketbert.training.pretrain import pretrain
    from pocketbert.training.pretrain_config import PretrainConfig
    from pocketbert_bench.benchmark import Benchmark, benchmark
    from pocketbert_bench.compression.constraints import Constraints
    from pocketbert_bench.compression.run import compress
    from pocketbert_bench.model_comparison import compare
    from pocketbert_export.bundles.bundle import Bundle
    from pocketbert_export.exporter import export
    from pocketbert_runtime.tokenizers.added_tokens import AddedToken

# Name → module; names from the higher packages too. Distillation methods are discovered.
_MODULE_OF = {
    "AddedToken": "pocketbert_runtime.tokenizers.added_tokens",
    "Benchmark": "pocketbert_bench.benchmark",
    "BottleneckConfig": "pocketbert.configs",
    "Bundle": "pocketbert_export.bundles.bundle",
    "Constraints": "pocketbert_bench.compression.constraints",
    "ByteBPETokenizer": "pocketbert.tokenizers.byte_bpe",
    "Encoder": "pocketbert.encoder",
    "EncoderConfig": "pocketbert.configs",
    "FeatureRequest": "pocketbert.encoder",
    "Model": "pocketbert.model",
    "PretrainingData": "pocketbert.data.pretraining.reader",
    "FinetuneConfig": "pocketbert.training.config",
    "PretrainConfig": "pocketbert.training.pretrain_config",
    "PruneConfig": "pocketbert.pruning.config",
    "RunConfig": "pocketbert.training.config",
    "pretrain": "pocketbert.training.pretrain",
    "prune": "pocketbert.pruning.run",
    "SupernetSlices": "pocketbert.distillation.initialization",
    "TaskConfig": "pocketbert.configs",
    "TaskData": "pocketbert.data.task_data",
    "TeacherLayers": "pocketbert.distillation.initialization",
    "TextData": "pocketbert.data.task_data",
    "UnigramTokenizer": "pocketbert.tokenizers.unigram",
    "UserError": "pocketbert.errors",
    "WordPieceTokenizer": "pocketbert.tokenizers.wordpiece",
    "benchmark": "pocketbert_bench.benchmark",
    "compare": "pocketbert_bench.model_comparison",
    "compress": "pocketbert_bench.compression.run",
    "data": "pocketbert.data",
    "distill": "pocketbert.distillation.run",
    "export": "pocketbert_export.exporter",
    "extend_vocabulary": "pocketbert.checkpoints.vocabulary_extension",
    "extend_vocabulary_from_text": "pocketbert.pruning.new_words",
    "finetune": "pocketbert.training.finetune",
    "from_preset": "pocketbert.model",
    "from_pretrained": "pocketbert.model",
    "trim_vocabulary": "pocketbert.pruning.vocabulary",
}


def _public() -> dict[str, str]:
    """Public name → module, with each distillation method's class."""
    from pocketbert.distillation.methods import classes

    return {**_MODULE_OF, **{name: method.__module__ for name, method in classes().items()}}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_public(), "presets"])
    # Only capitalized names: `from pocketbert import configs` must not import the methods, which import configs.
    modules = _public() if name not in _MODULE_OF and name[:1].isupper() else _MODULE_OF
    if name not in modules:
        from pocketbert.errors import did_you_mean

        names = sorted([*modules, "presets"])
        raise AttributeError(
            f"module 'pocketbert' has no attribute {name!r}{did_you_mean(name, names)}; it has {', '.join(names)}"
        )
    module = importlib.import_module(modules[name])
    value = globals()[name] = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_public()])
