"""Flat names of PyTorch, and models that don't divide logits by √K."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from mimetic_jax import attention_rules, check, rewrite
from mimetic_jax.schemes import Mimetic

KEY = jax.random.key(0)
D, H, K = 32, 2, 16


def test_names_in_tuples_are_those_of_the_tree():
    tree = nn.MultiHeadDotProductAttention(H).init(KEY, jnp.ones((1, 2, D)))
    flat = rewrite(KEY, traverse_util.flatten_dict(tree), Mimetic())
    jax.tree.map(
        np.testing.assert_array_equal,
        traverse_util.unflatten_dict(flat),
        rewrite(KEY, tree, Mimetic()),
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_logits_of_a_model_that_does_not_divide_them(dtype):
    """The stored query holds 1/√K, the canonical one doesn't."""
    tree = {
        "attn": {
            name: {"kernel": jnp.ones(shape, dtype), "bias": jnp.ones(shape[1:], dtype)}
            for name, shape in {"query": (D, H, K), "key": (D, H, K)}.items()
        }
    }
    scheme = Mimetic(alpha_vo=None, beta_vo=None, zero_bias=False)
    plain, folded = (
        rewrite(KEY, tree, scheme, rules=attention_rules(undivided=undivided))["attn"]
        for undivided in (False, True)
    )
    np.testing.assert_allclose(
        np.float32(folded["query"]["kernel"]) * 4, np.float32(plain["query"]["kernel"])
    )
    np.testing.assert_array_equal(folded["key"]["kernel"], plain["key"]["kernel"])
    read = check({"attn": folded}, rules=attention_rules(undivided=True))
    assert read == check({"attn": plain}, rules=attention_rules())
