"""PocketBERT: from a BERT that works to the small, fast, proven model that runs on a phone.

The names below are imported when they are first used, so that `import pocketbert` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# `presets` names a function and its module; imported here, first, the function keeps the name.
from pocketbert.presets import presets

# tf-models-official and tfmot need Keras 2; this must be set before TensorFlow is imported (ADR 1).
os.environ["TF_USE_LEGACY_KERAS"] = "1"

if TYPE_CHECKING:
    from pocketbert.configs import BottleneckConfig, EncoderConfig, TaskConfig
    from pocketbert.encoder import Encoder, FeatureRequest
    from pocketbert.errors import UserError
    from pocketbert.model import Model, from_preset, from_pretrained
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

__version__ = "0.1.0"

_MODULE_OF = {
    "BottleneckConfig": "pocketbert.configs",
    "Encoder": "pocketbert.encoder",
    "EncoderConfig": "pocketbert.configs",
    "FeatureRequest": "pocketbert.encoder",
    "Model": "pocketbert.model",
    "TaskConfig": "pocketbert.configs",
    "UserError": "pocketbert.errors",
    "WordPieceTokenizer": "pocketbert.tokenizers.wordpiece",
    "from_preset": "pocketbert.model",
    "from_pretrained": "pocketbert.model",
}

__all__ = sorted([*_MODULE_OF, "presets"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'pocketbert' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = importlib.import_module(_MODULE_OF[name])
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
