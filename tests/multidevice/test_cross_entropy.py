"""Cross-entropy of tokens that are cut over eight devices."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimetic_jax.train.cluster.mesh import BATCH, make_mesh
from mimetic_jax.train.tasks.cross_entropy import token_losses


@pytest.mark.parametrize(
    "placement",
    [P(None, "fsdp"), *(pytest.param(p, marks=pytest.mark.slow) for p in (P(), P("fsdp")))],
)
def test_each_device_works_through_its_own_tokens(placement):
    """The same as on one device; nothing but the embedding is gathered, once, and its gradient
    summed, once: no communication in a loop."""
    mesh, (tokens, vocab, width) = make_mesh(data=4, fsdp=2), (512, 1000, 32)
    keys = jax.random.split(jax.random.key(0), 3)
    hidden = jax.random.normal(keys[0], (tokens, width))
    embedding = jax.random.normal(keys[1], (vocab, width))
    targets = jax.random.randint(keys[2], (tokens,), 0, vocab)

    def gradients(mesh):
        def loss(hidden, embedding, bias):
            chunk = 16 * 4 * vocab
            return token_losses(
                hidden, embedding, bias, targets, chunk_bytes=chunk, mesh=mesh
            ).mean()

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))

    expected = gradients(None)(hidden, embedding, jnp.zeros(vocab))
    placed = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in ((hidden, BATCH), (embedding, placement), (jnp.zeros(vocab), P()))
    ]
    found = gradients(mesh)(*placed)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
    program = gradients(mesh).lower(*placed).compile().as_text()
    # Of the tokens nothing travels; of the embedding everything, before and after the loops.
    assert len(re.findall(r" all-gather(?:-start)?\(", program)) == (placement != P())
    assert len(re.findall(r" all-reduce(?:-start)?\(", program)) <= 2  # kernel and bias
