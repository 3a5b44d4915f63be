"""The first Mamba: its scan against the recurrence, the reference's logits, its mimetic start."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

import mimetic_jax
from mimetic_jax.models import Mamba1
from mimetic_jax.models.mamba1 import selective_scan
from mimetic_jax.schemes import MimeticSSM, NormMatched
from tests.golden import mamba as reference

KEY = jax.random.key(0)
MODEL = Mamba1(**reference.FIELDS_1)
TOKENS = jnp.asarray(reference.tokens())


@pytest.fixture(scope="module")
def params() -> dict[str, Any]:
    """The weights of the golden arrays."""
    shapes = jax.eval_shape(MODEL.init, KEY, TOKENS)["params"]
    flat = traverse_util.flatten_dict(shapes, sep="/")
    drawn = {path: reference.weight(path, leaf.shape) for path, leaf in flat.items()}
    return traverse_util.unflatten_dict(drawn, sep="/")


@pytest.fixture(scope="module")
def logits() -> Any:
    return jax.jit(lambda params, ids: MODEL.apply({"params": params}, ids, method="logits"))


@pytest.mark.parametrize(("length", "rate"), [(23, 0.01), (24, 1.0), (1, 1.0)])
def test_the_scan_is_the_recurrence(length: int, rate: float) -> None:
    """Token by token, in float64 NumPy."""
    rng = np.random.default_rng(0)
    x, step = rng.normal(size=(2, length, 3)), rng.uniform(0.1, 1, (2, length, 3))
    decay = -rate * rng.uniform(0.5, 2, (3, 5))
    b, c = rng.normal(size=(2, 2, length, 5))
    state, expected = np.zeros((2, 3, 5)), []
    for n in range(length):
        state = np.exp(step[:, n, :, None] * decay) * state
        state += step[:, n, :, None] * x[:, n, :, None] * b[:, n, None, :]
        expected.append((state * c[:, n, None, :]).sum(axis=-1))
    found = jax.jit(selective_scan)(*(jnp.asarray(a, jnp.float32) for a in (x, step, decay, b, c)))
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-5, atol=1e-5)


def test_logits_of_the_reference(golden: Any, params: Any, logits: Any) -> None:
    expected = golden("mamba1")["logits"]
    found = logits(params, TOKENS)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_it_starts_as_the_reference() -> None:
    model = MODEL.clone(width=32, rank=0, depth=1)
    params = jax.jit(model.init)(KEY, TOKENS)["params"]["block_0"]["mixer"]
    assert params["dt_low"]["kernel"].shape == (64, 2)  # D / 16
    np.testing.assert_allclose(np.exp(params["A_logs"]), [np.arange(1, 6)] * 64, rtol=1e-6)
    step = np.log1p(np.exp(params["dt_bias"]))
    assert 0.00099 < step.min() < 0.01 < step.max() < 0.101
    assert 0.85 * 2**-0.5 < np.abs(params["dt"]["kernel"]).max() <= 2**-0.5


def test_schemes_rewrite_it(params: Any) -> None:
    """As `check` shows; the control has the norms."""
    scheme = MimeticSSM(noise=0.0)
    tree = mimetic_jax.rewrite(KEY, params, scheme)
    old, new = (one["block_1"]["mixer"] for one in (params, tree))
    np.testing.assert_allclose(np.exp(new["A_logs"]), 1e-3, rtol=1e-5)
    np.testing.assert_allclose(np.log1p(np.exp(new["dt_bias"])), 1, rtol=1e-5)
    np.testing.assert_array_equal(new["c"]["kernel"], old["b"]["kernel"])
    np.testing.assert_array_equal(new["conv"]["kernel"][-1], 1)
    assert not new["conv"]["kernel"][:-1].any()
    for untouched in ("x", "z", "b", "dt", "dt_low", "out_proj"):
        np.testing.assert_array_equal(new[untouched]["kernel"], old[untouched]["kernel"])
    _, layer = mimetic_jax.check(tree).state_spaces
    assert layer.read_write > 5 * layer.noise
    assert layer.decay == pytest.approx((1e-3, 1e-3))
    control = mimetic_jax.rewrite(KEY, params, NormMatched(scheme))["block_1"]["mixer"]
    for name in ("A_logs", "dt_bias"):
        norms = [np.linalg.norm(one[name]) for one in (new, control)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    stacked = jax.eval_shape(MODEL.clone(scan=True).init, KEY, TOKENS)["params"]
    assert {write.role for write in mimetic_jax.plan(stacked, scheme)} == {
        *("ssm_a_states", "ssm_dt_bias", "ssm_c", "ssm_conv", "ssm_conv_bias")
    }
