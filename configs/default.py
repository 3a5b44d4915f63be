"""What each configuration starts from: every field with its default.

The fields are declared in `mimetic_jax.train.fields`; `--mode=fields` lists them. The arguments of
`--config=configs/NAME.py:ARGUMENT=VALUE` are those of the file's `get_config`, with their types.
"""

from collections.abc import Iterable

from mimetic_jax.base.errors import unknown
from mimetic_jax.train.schema import default, model

__all__ = ["check_choice", "default", "model"]


def check_choice(name: str, value: str, known: Iterable[str]) -> None:
    """Check that an argument has one of the values that it may have; the error has the nearest."""
    if value not in known:
        raise unknown(name, value, known)
