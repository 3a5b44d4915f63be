import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import models, rewrite
from mimetic_jax.schemes import ImpulseBias, MeanShift, Mimetic
from mimetic_jax.weights.impulse import offsets
from tests.models import values

KEY = jax.random.key(3)
WIDTH, HEADS, WINDOW, SIDE = 16, 4, 4, 8
TABLES = {"microsoft": "relative_bias", "cifar": "shared_bias"}
STD = {"microsoft": 0.02, "cifar": 1.0}


@functools.cache
def drawn(form, scan=False):
    """A Swin of six blocks, on 8x8 and on 4x4 tokens, with tables of the scale of its form."""
    fields = {"width": WIDTH, "head_dim": WIDTH // HEADS, "window": WINDOW, "scan": scan}
    model = models.Swin(5, form=form, depths=(2, 4), downscaling=(2, 2), **fields)
    return values.drawn(model, jnp.zeros((1, 2 * SIDE, 2 * SIDE, 3)), STD[form])


def tables(form, params):
    """The biases of every block, in order: [13, 13, H] or [13, 13]."""
    side = 2 * WINDOW - 1
    found = [block for _, _, block in mimetic_jax.blocks(params) if TABLES[form] in block]
    return [np.asarray(block[TABLES[form]]).reshape(side, side, -1).squeeze() for block in found]


@pytest.mark.parametrize("scan", [False, True])
def test_offsets_go_by_head_or_by_block(scan):
    """Only the bias of the offset changes, by the strength: the scale of the rest stays."""
    for form in TABLES:
        before = drawn(form, scan)
        after = rewrite(KEY, before, ImpulseBias(strength=3.0))
        expected = offsets(3, 6)
        pairs = zip(tables(form, before), tables(form, after), strict=True)
        for layer, (old, new) in enumerate(pairs):
            changed = np.argwhere(new - old > 1.0)
            np.testing.assert_allclose((new - old)[tuple(changed.T)], 3.0, atol=1e-5)
            assert (old == new).sum() == old.size - len(changed)
            if form == "cifar":
                assert changed.tolist() == [(WINDOW - 1 + expected[layer]).tolist()]
            else:
                by_head = changed[changed[:, 2].argsort(), :2]
                assert (WINDOW - 1 - by_head == offsets(3, old.shape[2])).all()
                assert old.shape[2] == (HEADS if layer < 2 else 2 * HEADS)


def test_mimetic_and_mean_shift_apply_in_every_stage():
    params = drawn("cifar", scan=True)
    value_out = Mimetic(alpha_qk=None, beta_qk=None, alpha_vo=0.0)
    new = rewrite(KEY, params, (value_out, MeanShift(0.5)))
    for stage, width in (("stage_0", WIDTH), ("stage_1", 2 * WIDTH)):
        attention, mlp = (new[stage]["blocks"][name] for name in ("attention", "mlp"))
        value, out = attention["value"]["kernel"], attention["out"]["kernel"]
        for product in np.einsum("ldhk,lhke->lde", value, out):
            np.testing.assert_allclose(product, -0.4 * np.eye(width), atol=1e-5)
        expected = params[stage]["blocks"]["attention"]["shared_bias"]
        np.testing.assert_array_equal(attention["shared_bias"], expected)
        assert float(mlp["fc1"]["kernel"].mean()) == pytest.approx(0.5, abs=0.1)
