"""Settings under which TensorFlow takes tiny graphs for less; for the suite's processes and the forks of `killed_runs`.

A test of ours writes thousands of operations into graphs that then run a few times, so that making graphs is what the
suite's time goes into. What is left out here changes no operation's result beyond rounding:

- Grappler's passes, which make large graphs faster. They may change the order of sums, hence the last bits: runs that
  are compared bit by bit must both be made with or without them. The fixture `graph_optimizer` turns them on.
- The Python stack of each operation, which only messages of failing operations show. Under pytest it is deep.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
from collections.abc import Iterator


def set_optimizer(enabled: bool) -> None:
    """Turns Grappler on or off for functions that are called from now on."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not enabled})


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Runs `tf.function`s operation by operation: for runs of up to five steps, as tracing takes as long as ten."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def use() -> None:
    """Makes graphs cheap in this process, which does not fork from then on: TensorFlow starts its threads."""
    from tensorflow.python.framework import ops

    set_optimizer(enabled=False)
    # Its last parameter, extract_traceback; operations of a loaded graph have none either.
    create = inspect.unwrap(ops._create_c_op)
    assert inspect.signature(create).parameters["extract_traceback"].default in (True, False)
    create.__defaults__ = (None, False)
    # Modules are there to stay: without them, a collection looks at a tenth of the objects.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
