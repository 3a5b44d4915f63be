"""Flax NNX: schemes on live modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.typed import shown
from mimetic_jax.schemes import Scheme
from mimetic_jax.tree.placement import one_key
from mimetic_jax.tree.rewrite import Plan, plan, rewrite


def initialize(
    module: nnx.Module, key: jax.Array | nnx.Rngs, scheme: Scheme | Sequence[Scheme], **options: Any
) -> Plan:
    """Rewrite a module's parameters in place.

    The numbers are those of `rewrite` on the pure dictionary of the parameters. Inside `nnx.jit`
    or a function that creates the model, the computation stays in the program; over automatic mesh
    axes, constrain the module's state to its shardings afterwards, as after any update.

    Args:
        module: any NNX module; rules match the paths of its `nnx.Param` variables.
        key: a `jax.random` key, or `nnx.Rngs`, from which the next key of `params` is taken.
        scheme: a scheme, or a tuple or list of schemes.
        **options: those of `rewrite`: num_heads, num_kv_heads, rules, grid, counts, following,
            covariance.

    Returns:
        What was written; print it.

    Raises:
        InputError: as `rewrite`; or if the arguments come in another order.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> layer = nnx.MultiHeadAttention(2, 16, decode=False, rngs=nnx.Rngs(0))
        >>> [write.path for write in initialize(layer, jax.random.key(0), Mimetic())]
        ['key/kernel', 'key/bias', 'out/kernel', 'out/bias',
         'query/kernel', 'query/bias', 'value/kernel', 'value/bias']
        >>> value, out = layer.value.kernel[...], layer.out.kernel[...]
        >>> bool((value.reshape(16, 16) @ out.reshape(16, 16)).diagonal().mean() < -0.3)
        True
    """
    with blaming("initialize(module, key, scheme)"):
        key = one_key(key)
        if not isinstance(module, nnx.Pytree):
            raise InputError(f"the module must be an nnx.Module, not {shown(module)}")
    params = nnx.state(module, nnx.Param)
    written = plan(params, scheme, **options)
    nnx.update(module, rewrite(key, params, scheme, **options))
    return written
