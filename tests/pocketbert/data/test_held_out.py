"""How much is set aside of texts that have many examples each; that groups stay together is tested with the command."""

from __future__ import annotations

import numpy as np
import pytest

from pocketbert.data.examples import Examples
from pocketbert.data.held_out import hold_out


def _examples(*sizes: int) -> Examples:
    """So many examples of each text."""
    texts = [f"text {number}" for number, size in enumerate(sizes) for _ in range(size)]
    return Examples(texts, None, None, [str(index) for index in range(len(texts))], "here")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("sizes", "aside"),
    [
        # A tenth of 520 is 52: 20 at most, since 500 would be almost all.
        ([500, 20], 20),
        ([20, 500], 20),
        # 92: 20 or 420, which is too much.
        ([500, 20, 400], 20),
        # 90.1: a part is not so small either where one more text brings it there.
        ([100] * 9 + [1], 101),
        # Nothing is small: one, the smallest.
        ([300, 200, 400], 200),
        ([700, 700], 700),
        # Small ones are enough, whatever the large one is.
        ([4] * 30 + [480], 60),
    ],
)
def test_large_texts_are_not_set_aside_where_others_will_do(sizes: list[int], aside: int, seed: int) -> None:
    train, dev = hold_out(_examples(*sizes), seed=seed)
    assert (len(train), len(dev)) == (sum(sizes) - aside, aside)
    assert not {*train.texts} & {*dev.texts}


def test_of_small_texts_the_draw_is_what_it_always_was() -> None:
    sizes = np.random.default_rng(4).integers(1, 12, 41)
    examples = _examples(*sizes)
    # Texts in the order of the draw until there is a tenth.
    drawn, count = set(), 0
    for text in np.random.default_rng(0).permutation(len(sizes)):
        drawn.add(f"text {text}")
        count += sizes[text]
        if count >= 0.1 * sizes.sum():
            break
    assert {*hold_out(examples)[1].texts} == drawn
