"""Cross-entropy in chunks: the loss and gradients of all logits at once, without their memory."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.train.tasks.cross_entropy import token_losses

T, V, D = 37, 101, 12
TOKEN = 4 * V  # bytes of one token's logits


def example(scale: float = 1.0) -> tuple[jax.Array, jax.Array, jax.Array]:
    """hidden, embedding and bias."""
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((T, D), (V, D), (V,))
    hidden, embedding, bias = (
        jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)
    )
    return scale * hidden, embedding, bias


TARGETS = np.random.default_rng(4).integers(0, V, T)
WEIGHTS = np.random.default_rng(5).uniform(size=T).astype(np.float32)


def truth(hidden: Any, embedding: Any, bias: Any) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Losses, and gradients of their sum by WEIGHTS, in float64."""
    hidden, embedding, bias = (np.asarray(x, np.float64) for x in (hidden, embedding, bias))
    logits = hidden @ embedding.T + bias
    top = logits.max(1, keepdims=True)
    exponentials = np.exp(logits - top)
    total = exponentials.sum(1, keepdims=True)
    losses = (top + np.log(total))[:, 0] - logits[np.arange(T), TARGETS]
    error = (exponentials / total - np.eye(V)[np.asarray(TARGETS)]) * np.asarray(WEIGHTS)[:, None]
    return losses, (error @ embedding, error.T @ hidden, error.sum(0))


def losses_and_gradients(*arrays: jax.Array, **options: Any) -> tuple[jax.Array, Any]:
    def weighted(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        losses = token_losses(*arrays, TARGETS, **options)
        return (losses * WEIGHTS).sum(), losses

    gradients, losses = jax.jit(jax.grad(weighted, argnums=(0, 1, 2), has_aux=True))(*arrays)
    return losses, gradients


@pytest.mark.parametrize(("chunk", "scale"), [(1, 1.0), (36, 1.0), (1000, 1.0), (5, 300.0)])
def test_losses_and_gradients_are_those_of_all_logits_in_float64(chunk, scale):
    """37 tokens are no multiple of most chunks; logits of thousands must not overflow."""
    arrays = example(scale)
    losses, gradients = losses_and_gradients(*arrays, chunk_bytes=chunk * TOKEN)
    expected, expected_gradients = truth(*arrays)
    assert losses.dtype == jnp.float32
    np.testing.assert_allclose(losses, expected, rtol=2e-5, atol=2e-5 * scale)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("chunk", [5, 1000])
def test_bfloat16_rounds_the_factors_of_products_only(chunk):
    hidden, embedding, bias = example()
    hidden = hidden.astype(jnp.bfloat16)
    losses, gradients = losses_and_gradients(hidden, embedding, bias, chunk_bytes=chunk * TOKEN)
    expected, wanted = truth(hidden, embedding.astype(jnp.bfloat16), bias)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    assert [gradient.dtype for gradient in gradients] == [jnp.bfloat16, jnp.float32, jnp.float32]
    np.testing.assert_allclose(gradients[2], wanted[2], rtol=1e-4, atol=1e-5)
    for found, exact in zip(gradients[:2], wanted[:2], strict=True):
        got = found.astype(jnp.float32)
        np.testing.assert_allclose(got, exact, atol=2**-8 * np.abs(exact).max())


def test_embedding_gradient_sums_chunks_in_float32():
    """4096 equal tokens, one a chunk: a bfloat16 sum of equal terms stops growing at 256 terms."""
    count = 4096
    hidden, embedding = jnp.ones((count, 1), jnp.bfloat16), jnp.zeros((2, 1))

    def total(embedding: jax.Array) -> jax.Array:
        targets = jnp.zeros(count, jnp.int32)
        return token_losses(hidden, embedding, jnp.zeros(2), targets, chunk_bytes=1).sum()

    np.testing.assert_allclose(jax.grad(total)(embedding), [[-count / 2], [count / 2]], rtol=1e-6)


def test_it_can_be_mapped_over_members():
    arrays = [jnp.stack([x, x + 0.5]) for x in example()]
    losses = functools.partial(token_losses, targets=TARGETS, chunk_bytes=5 * TOKEN)
    mapped, alone = jax.jit(jax.vmap(lambda *arrays: losses(*arrays)))(*arrays), jax.jit(losses)
    for member in range(2):
        np.testing.assert_allclose(mapped[member], alone(*(x[member] for x in arrays)), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_memory_is_one_chunk_of_logits_however_many_tokens(dtype):
    """WikiText-103's vocabulary and width, compiled and not run: the logits of 16384 tokens would
    be 17 GB, and their gradient as much."""
    vocab, width = 267_735, 410

    def temporary(tokens: int) -> int:
        gradient = jax.grad(lambda *arrays: token_losses(*arrays).mean(), argnums=(0, 1, 2))
        shapes = (
            jax.ShapeDtypeStruct((tokens, width), dtype),
            jax.ShapeDtypeStruct((vocab, width), jnp.float32),
            jax.ShapeDtypeStruct((vocab,), jnp.float32),
            jax.ShapeDtypeStruct((tokens,), jnp.int32),
        )
        return jax.jit(gradient).lower(*shapes).compile().memory_analysis().temp_size_in_bytes

    few, many = temporary(4096), temporary(16384)
    assert many < 2 * 2**30
    assert many - few < 4 * (16384 - 4096) * width * 4
