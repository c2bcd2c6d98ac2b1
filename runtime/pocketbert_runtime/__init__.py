"""PocketBERT's runtime: text in, answer out, from a bundle, with NumPy and LiteRT.

Example:
  ```python
  from pocketbert_runtime import Bundle

  Bundle.open("bundle").predict(["a charming journey"])  # [{"label": "positive", "probabilities": {…}}]
  ```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketbert_runtime.bundles.bundle import Bundle as Bundle
    from pocketbert_runtime.errors import UserError as UserError

# Equal to `pocketbert.__version__`: both distributions are built from one checkout.
__version__ = "0.1.0"
__all__ = ["Bundle", "UserError"]


def __getattr__(name: str) -> Any:
    # Imported on first use: a process that measures a file imports a module of this package, and no other.
    if name == "Bundle":
        from pocketbert_runtime.bundles.bundle import Bundle

        return Bundle
    if name == "UserError":
        from pocketbert_runtime.errors import UserError

        return UserError
    raise AttributeError(f"module 'pocketbert_runtime' has no attribute {name!r}; it has {', '.join(__all__)}")
