"""Checks the keys that draws start from."""

from __future__ import annotations

import jax

from mimetic_jax.errors import InputError


def check_key(key: object) -> None:
    """Check that this is one key of `jax.random`: of `key(seed)`, or of the older `PRNGKey(seed)`.

    >>> check_key(3)
    Traceback (most recent call last):
    mimetic_jax.errors.InputError: the key must be jax.random.key(seed), not 3

    Args:
        key: concrete or traced.

    Raises:
        InputError: it isn't.
    """
    if not isinstance(key, jax.Array):
        known = key is None or isinstance(key, int)
        found = repr(key) if known else f"a {type(key).__name__}"
        raise InputError(f"the key must be jax.random.key(seed), not {found}")
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        single = key.ndim == 0
    else:
        single = key.ndim == 1 and key.dtype == "uint32"
    if not single:
        raise InputError(
            f"the key must be one jax.random.key(seed), not {key.dtype} of shape {key.shape}"
        )
