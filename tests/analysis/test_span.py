from __future__ import annotations

import pytest

from mimetic_jax.analysis.span import impulse_subsets


@pytest.mark.parametrize(
    ("width", "size", "expected"),
    [(256, 3, 20.8), (256, 5, 4.5), (256, 8, 0.3), (512, 3, 45.9), (512, 5, 12.2), (512, 8, 2.3)],
)
def test_the_papers_numbers_for_impulses(width: int, size: int, expected: float) -> None:
    counts = impulse_subsets(0, width, size, draws=2000)
    assert counts.mean() == pytest.approx(expected, abs=0.06 + 3 * counts.std() / 2000**0.5)
