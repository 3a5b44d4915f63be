from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mimetic_jax.models import ViT
from mimetic_jax.train.state import TrainState, stream
from mimetic_jax.train.step import count_batch, make_train_step

MODEL = ViT(num_classes=10, width=16, depth=1, heads=2, patch=4)
IMAGES = jax.random.normal(jax.random.key(1), (16, 8, 8, 1))
LABELS = jax.random.randint(jax.random.key(2), (16,), 0, 10)
SGD = optax.sgd(0.1)


def initial(seed=0):
    params = MODEL.init(jax.random.key(seed), IMAGES)["params"]
    return TrainState(step=jnp.int32(0), params=params, opt_state=SGD.init(params))


def test_accumulation_is_the_whole_batch():
    key = jax.random.key(0)
    whole, metrics = make_train_step(MODEL, SGD)(initial(), (IMAGES, LABELS), key)
    parts, same = make_train_step(MODEL, SGD, accumulate=4)(initial(), (IMAGES, LABELS), key)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), whole, parts)
    np.testing.assert_allclose(metrics["loss"], same["loss"], rtol=1e-6)
    np.testing.assert_allclose(metrics["grad_norm"], same["grad_norm"], rtol=1e-5)


def test_loss_is_cross_entropy_with_smoothed_labels():
    state = initial()
    step = make_train_step(MODEL, SGD, label_smoothing=0.1)
    _, metrics = step(state, (IMAGES, LABELS), jax.random.key(0))
    logits = np.asarray(MODEL.apply({"params": state.params}, IMAGES), np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    targets = 0.9 * np.eye(10)[np.asarray(LABELS)] + 0.01
    np.testing.assert_allclose(metrics["loss"], -(targets * log_p).sum(-1).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["accuracy"], (logits.argmax(-1) == LABELS).mean())


def test_step_vmaps_over_members():
    """Ordinary training is a population of one."""
    step = make_train_step(MODEL, SGD)
    members = [initial(0), initial(1)]
    together = jax.tree.map(lambda *x: jnp.stack(x), *members)
    keys = jax.random.split(jax.random.key(0), 2)
    new, _ = jax.vmap(step, (0, None, 0))(together, (IMAGES, LABELS), keys)
    for index, member in enumerate(members):
        alone, _ = step(member, (IMAGES, LABELS), keys[index])
        jax.tree.map(
            lambda a, b, i=index: np.testing.assert_allclose(a[i], b, atol=1e-5), new, alone
        )


def test_padding_counts_nothing():
    params = initial().params
    weights = jnp.ones(16).at[10:].set(0)
    padded = count_batch(MODEL, params, (IMAGES, LABELS), weights)
    alone = count_batch(MODEL, params, (IMAGES[:10], LABELS[:10]), jnp.ones(10))
    assert int(padded["count"]) == 10
    assert int(padded["correct"]) == int(alone["correct"])
    np.testing.assert_allclose(padded["loss"], alone["loss"], rtol=1e-5)


def test_streams_differ_by_seed_and_name():
    keys = {
        tuple(jax.random.key_data(stream(s, n)).tolist()) for s in (0, 1) for n in ("init", "data")
    }
    assert len(keys) == 4
