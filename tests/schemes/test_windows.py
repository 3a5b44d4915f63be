import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import models, rewrite
from mimetic_jax.models.windows import WindowAttention
from mimetic_jax.schemes import ImpulseBias, MeanShift, Mimetic
from mimetic_jax.weights.impulse import offsets

KEY = jax.random.key(3)
WIDTH, HEADS, WINDOW, SIDE = 16, 4, 4, 8
TABLES = {"microsoft": "relative_bias", "cifar": "shared_bias"}
STD = {"microsoft": 0.02, "cifar": 1.0}


@functools.cache
def drawn(form, scan=False):
    """A Swin of twelve blocks, on 8x8 and on 4x4 tokens, with tables of the scale of its form."""
    model = models.Swin(
        num_classes=5,
        form=form,
        width=WIDTH,
        depths=(2, 10),
        downscaling=(2, 2),
        head_dim=WIDTH // HEADS,
        window=WINDOW,
        scan=scan,
    )
    shapes = jax.eval_shape(model.init, KEY, jnp.zeros((1, 2 * SIDE, 2 * SIDE, 3)))["params"]
    random = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: np.asarray(STD[form] * random.normal(size=leaf.shape), np.float32), shapes
    )


def tables(form, params):
    """The biases of every block, in order: [13, 13, H] or [13, 13]."""
    side = 2 * WINDOW - 1
    found = [block for _, _, block in mimetic_jax.blocks(params) if TABLES[form] in block]
    return [np.asarray(block[TABLES[form]]).reshape(side, side, -1).squeeze() for block in found]


@functools.cache
def attention_maps(form, shift):
    """table -> attention [H, N, N] over the tokens of a grid, by the model's own layer.

    With zero queries the logits are the biases. Value and out are identities, so that an example
    whose token m alone is 1 shows what every token gets from token m.
    """
    count, zeros, identity = SIDE**2, jnp.zeros((WIDTH, HEADS, WIDTH // HEADS)), jnp.eye(WIDTH)
    layer = WindowAttention(HEADS, window=WINDOW, shared_bias=form == "cifar", qkv_bias=False)
    params = {
        "query": {"kernel": zeros},
        "key": {"kernel": zeros},
        "value": {"kernel": identity.reshape(zeros.shape)},
        "out": {"kernel": identity.reshape(HEADS, -1, WIDTH), "bias": jnp.zeros(WIDTH)},
    }
    x = jnp.broadcast_to(jnp.eye(count).reshape(count, SIDE, SIDE, 1), (count, SIDE, SIDE, WIDTH))

    @jax.jit
    def maps(table):
        stored = table.reshape(-1, HEADS) if form == "microsoft" else table
        out = layer.apply({"params": params | {TABLES[form]: stored}}, x, shift)
        return out.reshape(count, count, HEADS, -1)[..., 0].transpose(2, 1, 0)

    return maps


def intended_maps(form, table, shift):
    """The same by the definition: the softmax of the biases over the keys of a query's window."""
    at = np.stack(np.divmod(np.arange(SIDE**2), SIDE), axis=-1)
    window = (at - (shift or 0)) // WINDOW
    visible = (window[:, None] == window[None]).all(axis=-1)
    offset = at[None] - at[:, None]  # of the key from the query, by [query, key]
    sign = {"microsoft": -1, "cifar": 1}[form]
    row, column = np.moveaxis(np.where(visible[..., None], sign * offset + WINDOW - 1, 0), -1, 0)
    weights = np.where(visible, np.exp(np.moveaxis(np.atleast_3d(table)[row, column], -1, 0)), 0)
    return np.broadcast_to(weights / weights.sum(-1, keepdims=True), (HEADS, SIDE**2, SIDE**2))


def neighbors(offset, shift):
    """Tokens whose neighbor at the offset is in their window, and these neighbors."""
    here = np.stack(np.divmod(np.arange(SIDE**2), SIDE), axis=-1)
    there = here + offset
    first = shift or 0
    inside = ((here - first) // WINDOW == (there - first) // WINDOW).all(axis=1)
    inside &= ((there >= 0) & (there < SIDE)).all(axis=1)
    return np.flatnonzero(inside), (there @ (SIDE, 1))[inside]


@pytest.mark.parametrize(
    ("form", "shift"),
    [
        ("microsoft", WINDOW // 2),
        ("cifar", None),
        pytest.param("microsoft", None, marks=pytest.mark.slow),
        pytest.param("cifar", WINDOW // 2, marks=pytest.mark.slow),
    ],
)
def test_every_token_attends_to_its_neighbor(form, shift):
    """By a forward pass, with the mass that the table intends."""
    maps = attention_maps(form, shift)
    new = rewrite(KEY, drawn(form), ImpulseBias())
    for layer, table in enumerate(tables(form, new)[:2]):
        found, mirrored = np.asarray(maps(table)), np.asarray(maps(table[::-1, ::-1]))
        np.testing.assert_allclose(found, intended_maps(form, table, shift), atol=1e-5)
        for head, offset in enumerate(offsets(3, HEADS)):
            offset = offset if form == "microsoft" else offsets(3, 2)[layer]
            here, there = neighbors(offset, shift)
            assert (found[head, here].argmax(axis=1) == there).all()
            if form == "microsoft":  # the other biases are near 0, of 3 to 15 other tokens
                assert found[head, here, there].mean() > 0.9
            if offset.any():  # indexed the other way around it attends to the opposite neighbor
                assert mirrored[head, here, there].mean() < 0.25


@pytest.mark.parametrize("scan", [False, True])
def test_offsets_go_by_head_or_by_block(scan):
    """Only the bias of the offset changes, by the strength: the scale of the rest stays."""
    for form in TABLES:
        before = drawn(form, scan)
        after = rewrite(KEY, before, ImpulseBias(strength=3.0))
        expected = offsets(3, 12)
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
        product = np.einsum("ldhk,lhke->lde", value, out)
        expected = -0.4 * np.eye(width)[None].repeat(len(product), 0)
        np.testing.assert_allclose(product, expected, atol=1e-5)
        np.testing.assert_array_equal(
            attention["shared_bias"], params[stage]["blocks"]["attention"]["shared_bias"]
        )
        assert float(mlp["fc1"]["kernel"].mean()) == pytest.approx(0.5, abs=0.1)
