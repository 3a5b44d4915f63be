"""What a data set whose files are unusable is refused with."""

from __future__ import annotations

from pathlib import Path

import pytest

from mimetic_jax.data import load_dataset
from mimetic_jax.errors import InputError


def refused(name: str, data_dir: Path | None, *words: str) -> None:
    """Loading it raises an error of one line that has all the words."""
    with pytest.raises(InputError) as caught:
        load_dataset(name, None if data_dir is None else str(data_dir))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
