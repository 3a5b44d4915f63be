from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, block_key
from mimetic_jax.schemes import Block, Context, NormMatched
from mimetic_jax.schemes.mlp import AntiCorrelated, ConstantBias, MeanShift

KEY = jax.random.key(0)
SCHEMES = [MeanShift(), MeanShift(0.1, per_input=True), AntiCorrelated(), ConstantBias(0.02)]


def mlps(dim=8, hidden=16, layers=2, dtype=jnp.float32):
    def layer(index):
        keys = jax.random.split(jax.random.key(index))
        return {
            "fc1": {
                "kernel": jax.random.normal(keys[0], (dim, hidden), dtype),
                "bias": jnp.ones(hidden, dtype),
            },
            "fc2": {
                "kernel": jax.random.normal(keys[1], (hidden, dim), dtype),
                "bias": jnp.ones(dim, dtype),
            },
        }

    return {f"block_{i}": {"mlp": layer(i)} for i in range(layers)} | {"norm": jnp.ones(dim)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_the_first_layer_is_written(scheme):
    before, after = mlps(), mimetic_jax.rewrite(KEY, mlps(), scheme)
    leaf = "bias" if isinstance(scheme, ConstantBias) else "kernel"
    written = {write.path for write in mimetic_jax.plan(before, scheme)}
    assert written == {f"block_{i}/mlp/fc1/{leaf}" for i in range(2)}
    for i in range(2):
        old, new = before[f"block_{i}"]["mlp"], after[f"block_{i}"]["mlp"]
        assert np.abs(new["fc1"].pop(leaf) - old["fc1"].pop(leaf)).max() > 0.01
        jax.tree.map(np.testing.assert_array_equal, new, old)


def test_values():
    first, second = (np.asarray(mlps()["block_1"]["mlp"][n]["kernel"]) for n in ("fc1", "fc2"))

    def kernel(scheme):
        return mimetic_jax.rewrite(KEY, mlps(), scheme)["block_1"]["mlp"]["fc1"]["kernel"]

    np.testing.assert_allclose(kernel(MeanShift(-0.5)), first - 0.5 * first.std(), atol=1e-6)
    rows = np.asarray(kernel(MeanShift(0.5, per_input=True))) - first
    np.testing.assert_allclose(rows, rows[:, :1].repeat(16, axis=1), atol=1e-6)
    np.testing.assert_allclose(kernel(AntiCorrelated()), (first - second.T) / 2, atol=1e-6)
    tree = mimetic_jax.rewrite(KEY, mlps(), ConstantBias(0.02))
    np.testing.assert_allclose(tree["block_1"]["mlp"]["fc1"]["bias"], 0.02)


def test_layers_draw_different_numbers_and_shifts_add_up():
    scheme = MeanShift(per_input=True)
    before, after = mlps(), mimetic_jax.rewrite(KEY, mlps(), scheme)
    shift = jax.tree.map(jnp.subtract, after, before)
    rows = [shift[block]["mlp"]["fc1"]["kernel"][:, 0] for block in ("block_0", "block_1")]
    assert np.abs(rows[0] - rows[1]).max() > 0.1
    twice = mimetic_jax.rewrite(KEY, mlps(), (MeanShift(), MeanShift()))
    first = np.asarray(before["block_0"]["mlp"]["fc1"]["kernel"])
    expected = first + 2 * 0.5 * first.std()
    np.testing.assert_allclose(twice["block_0"]["mlp"]["fc1"]["kernel"], expected, atol=1e-5)


@pytest.mark.parametrize("scheme", [*SCHEMES, NormMatched(MeanShift())])
def test_jit_vmap_and_bfloat16(scheme):
    def rewritten(key, dtype=jnp.float32):
        return mimetic_jax.rewrite(key, mlps(dtype=dtype), scheme)

    eager = rewritten(KEY)
    keys = jnp.stack([jax.random.key(1), KEY])
    vmapped = jax.jit(jax.vmap(rewritten))(keys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[1], atol=1e-5), eager, vmapped)
    shapes = jax.eval_shape(rewritten, KEY)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, eager)
    half = rewritten(KEY, jnp.bfloat16)["block_0"]["mlp"]
    for array in jax.tree.leaves(half):
        assert array.dtype == jnp.bfloat16
        assert bool(jnp.isfinite(array).all())


def test_a_block_is_what_its_key_gives():
    tree = mlps()["block_1"]["mlp"]
    block = Block.of({"mlp_in": tree["fc1"]["kernel"]})
    scheme = MeanShift(per_input=True)
    new = scheme(block_key(KEY, "block_1/mlp"), block, Context())["mlp_in"]
    whole = mimetic_jax.rewrite(KEY, mlps(), scheme)
    np.testing.assert_array_equal(whole["block_1"]["mlp"]["fc1"]["kernel"], new)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fields_are_plain_data(scheme):
    fields = json.loads(json.dumps(dataclasses.asdict(scheme)))
    assert type(scheme)(**fields) == scheme
    assert scheme.at(0, 2) == scheme
    assert not scheme.writes(frozenset({"query", "key", "position"}))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ConstantBias(float("inf")), "value inf"),
        (lambda: mimetic_jax.rewrite(KEY, mlps(), MeanShift(float("nan"))), "MeanShift.b nan"),
        (
            lambda: mimetic_jax.rewrite(KEY, mlps(), MeanShift(-1.0, per_input=True)),
            "mlp: sigma -1.0",
        ),
        (
            lambda: AntiCorrelated().writes(frozenset({"mlp_in", "mlp_in_bias"})),
            "only mlp_in was found",
        ),
        (
            lambda: mimetic_jax.plan(
                {
                    "mlp": {
                        "fc1": {"kernel": jnp.ones((4, 8))},
                        "fc2": {"kernel": jnp.ones((8, 1, 4))},
                    }
                },
                AntiCorrelated(),
            ),
            r"^mlp/fc2/kernel has shape \(8, 1, 4\), which doesn't fit layout 'f d'",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
