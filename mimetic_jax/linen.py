"""Flax Linen: the stock attention layer, initialized by a scheme."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes import Scheme, as_tuple
from mimetic_jax.schemes.base import depth_dependence
from mimetic_jax.tree.rewrite import rewrite


class MultiHeadDotProductAttention(nn.MultiHeadDotProductAttention):
    """`flax.linen.MultiHeadDotProductAttention` with kernels drawn jointly by a scheme.

    The parameter tree, the fields and the call are the stock layer's. Initialization makes the
    stock draw first and then overwrites what the scheme writes, so that all other leaves equal
    the stock layer's; the output of `init_with_output` is that of the new weights.

    Attributes:
        attention_init: a scheme, or a tuple or list of schemes; None for the stock draw. A layer
            doesn't know its depth: what depends on it needs `rewrite` on the whole tree.

    Raises:
        InputError: when initialized, as `rewrite`, or if a scheme depends on depth.

    Example:
        >>> import jax.numpy as jnp
        >>> from mimetic_jax.schemes import Mimetic
        >>> layer = MultiHeadDotProductAttention(num_heads=2, attention_init=Mimetic())
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 4, 16)))["params"]
        >>> value, out = params["value"]["kernel"], params["out"]["kernel"]
        >>> bool((value.reshape(16, 16) @ out.reshape(16, 16)).diagonal().mean() < -0.3)
        True

    Reference: Mimetic Initialization of Self-Attention Layers.
    """

    attention_init: Scheme | Sequence[Scheme] | None = None

    @nn.compact
    def __call__(self, *inputs: jax.Array, **options: Any) -> jax.Array:  # type: ignore[override]
        # A layer that is called twice (shared weights) draws once.
        fresh = self.is_mutable_collection("params") and not self.has_variable("params", "query")
        output = super().__call__(*inputs, **options)
        if self.attention_init is None or not fresh:
            return output
        for scheme in as_tuple(self.attention_init):
            if what := depth_dependence(scheme):
                raise InputError(
                    f"{what} depends on the layer's depth, which a layer doesn't know: leave "
                    "attention_init unset and call rewrite(key, params, scheme) on the initialized "
                    "model"
                )
        drawn = self.variables["params"]
        params = rewrite(self.make_rng("params"), drawn, self.attention_init)
        for name, subtree in params.items():
            self.put_variable("params", name, subtree)
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(nn.MultiHeadDotProductAttention)
            if field.init and field.name not in ("parent", "name")
        }
        stock = nn.MultiHeadDotProductAttention(**fields, parent=None)
        rngs = {"dropout": self.make_rng("dropout")} if self.has_rng("dropout") else {}
        mutable = ["cache", "intermediates"]
        return stock.apply({"params": params}, *inputs, **options, rngs=rngs, mutable=mutable)[0]
