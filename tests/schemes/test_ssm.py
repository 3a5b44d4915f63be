"""State space layers: parts of the mimetic start, alone and in layers of a model.

What a layer makes of each part is in tests/zoo/test_mamba.py, by the formulas of its programs.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, Rule, blocks, plan, rewrite
from mimetic_jax.models import Mamba
from mimetic_jax.schemes import Block, Context, Layers, MimeticSSM
from tests.models.values import drawn

KEY = jax.random.key(0)
EVERY = MimeticSSM(noise=0.0)
SHAPES = {
    "ssm_a": (8,),
    "ssm_dt_bias": (8,),
    "ssm_b": (64, 32),
    "ssm_c": (64, 32),
    "ssm_conv": (4, 96),
    "ssm_conv_bias": (96,),
    "ssm_norm": (32,),
}
DRAWS = np.random.default_rng(0)
BLOCK = Block.of({role: jnp.float32(0.1 * DRAWS.normal(size=s)) for role, s in SHAPES.items()})
PARTS = {
    "decay": {"ssm_a"},
    "step": {"ssm_dt_bias"},
    "correlation": {"ssm_c"},
    "noise": {"ssm_conv", "ssm_conv_bias"},
}
MODEL = Mamba(vocab=11, width=16, depth=3, heads=4, state=8, groups=2)


def draw(scheme: Any) -> dict[str, np.ndarray]:
    return {role: np.asarray(x) for role, x in scheme(KEY, BLOCK, Context()).items()}


def params(**fields: Any) -> Any:
    return drawn(MODEL.clone(**fields), jnp.zeros((1, 3), jnp.int32))


@pytest.mark.parametrize("part", PARTS)
def test_each_part_may_be_left_out_or_alone(part):
    every = draw(EVERY)
    others = dict.fromkeys(PARTS.keys() - {part})
    for off, written in (
        ({part: None}, set(every) - PARTS[part]),
        (others, PARTS[part]),
    ):
        new = draw(MimeticSSM(**{"noise": 0.0, **off}))
        assert set(new) == written
        for role, array in new.items():
            np.testing.assert_array_equal(array, every[role])
    with pytest.raises(InputError, match="are all None"):
        MimeticSSM(**dict.fromkeys(PARTS))


@pytest.mark.parametrize("rho", [1.0, 0.7, 0.0, -0.5])
def test_correlation_leans_the_product_to_the_identity(rho):
    """tr(W_C W_Bᵀ) = ρ ‖W_B‖², and W_C has the norm of W_B."""
    read, written = draw(MimeticSSM(correlation=rho))["ssm_c"], np.asarray(BLOCK["ssm_b"])
    assert np.trace(read @ written.T) / np.sum(written**2) == pytest.approx(rho, abs=0.05)
    assert np.linalg.norm(read) == pytest.approx(np.linalg.norm(written), rel=0.05)


def test_power_spreads_the_decay_over_heads():
    """A = -exp(-c A_log), A_log = log U(1, 16): quantiles of u^-c."""
    block = Block.of({"ssm_a": jnp.zeros(4000)})
    for power in (2, 4, 8):
        log_a = MimeticSSM(decay=1.0, power=power)(KEY, block, Context())["ssm_a"]
        u = np.exp(-np.asarray(log_a, np.float64) / power)
        assert (u.min() >= 1, u.max() <= 16) == (True, True)
        np.testing.assert_allclose(np.quantile(u, (0.25, 0.5, 0.75)), (4.75, 8.5, 12.25), rtol=0.05)


@pytest.mark.parametrize("scan", [False, True])
def test_layers_of_a_model(scan):
    """Only those of the range; a key gives a stacked layer its own noise."""
    before = params(scan=scan)
    new = rewrite(KEY, before, Layers(MimeticSSM(correlation=0.5, noise=0.1), 0.5, 1))
    found = zip(blocks(before), blocks(new), strict=True)
    changed = [
        {role for role in old if not np.array_equal(old[role], block[role])}
        for (_, _, old), (_, _, block) in found
        if "ssm_a" in old
    ]
    assert changed == [set(), *[set().union(*PARTS.values())] * 2]
    noise = [block["ssm_c"] - 0.5 * block["ssm_b"] for _, _, block in blocks(new)][1:]
    assert np.abs(noise[0] - noise[1]).max() > 0.1
    assert len(plan(before, EVERY)) == (5 if scan else 15)


def test_parts_of_a_fused_projection_in_a_stack():
    """Columns z, x, b, c, dt: only those of c change. Sizes are those that other leaves show.

    One that doesn't repeat is in tests/zoo/test_mamba.py.
    """
    inner, state, heads = 24, 10, 4
    rules = (
        Rule("in_proj", ("", "", "ssm_b", "ssm_c", ""), "l d (2i+2s+m)"),
        Rule("A", "ssm_a", "l m"),
        Rule("N", "ssm_norm", "l i"),
    )
    shapes = {"in_proj": (3, 12, 2 * (inner + state) + heads), "A": (3, heads), "N": (3, inner)}
    tree = {name: np.float32(DRAWS.normal(size=shape)) for name, shape in shapes.items()}
    old = tree["in_proj"]
    new = rewrite(KEY, {"mixer": tree}, MimeticSSM(decay=None), rules=rules)["mixer"]["in_proj"]
    z_x, b, c, dt = np.split(old, 2 * inner + np.array([0, state, 2 * state]), axis=-1)
    np.testing.assert_array_equal(new, np.concatenate([z_x, b, b, dt], axis=-1))
    assert not np.array_equal(b, c)
    del tree["N"]
    words = "in_proj stores 2i.2s.m along one axis, and no leaf beside it shows i or s"
    with pytest.raises(InputError, match=words):
        rewrite(KEY, tree, MimeticSSM(), rules=rules)
