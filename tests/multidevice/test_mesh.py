"""Meshes change nothing but where arrays lie. Eight virtual devices; see test_multidevice.py."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mimetic_jax
from configs.default import default
from mimetic_jax import InputError, attention_rules, data
from mimetic_jax.schemes import Layers, Mimetic, NormMatched, SinCos, ZeroOut
from mimetic_jax.train.cluster.mesh import make_mesh, shardings
from mimetic_jax.train.state import stream
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.tasks import TASKS
from tests.noise import Noise
from tests.training import RATES, program_of, tiny
from tests.typical import typical

NOISE = Noise()
# Each is a program of its own; (2, 2, 2) has all axes.
on_each_mesh = typical("mesh", [(2, 2, 2)], slow=[(8, 1), (2, 4), (1, 4, 2)])
SCHEME, NORM_MATCHED = (SinCos(), Mimetic()), (SinCos(), NormMatched(Mimetic()))


def config():
    return tiny(steps=10, max_dispatch=10, **{"model.width": 32})


@functools.cache
def program(data_axis, fsdp, tensor=1):
    count = data_axis * fsdp * tensor
    mesh = make_mesh(data_axis, fsdp, tensor, devices=jax.devices()[:count])
    return program_of(config(), data.describe("digits"), mesh)


@functools.cache
def ten_steps(*axes):
    p = program(*axes)
    placed = p.feed.place(data.load_dataset("digits"))
    state = p.initial_state(0, SCHEME)
    keys = stream(0, "data"), stream(0, "dropout")
    state, history = p.compiled_dispatch(state, placed.train, *keys, 10, RATES)
    return np.asarray(history["loss"]), p.evaluate(state.variables, placed)[0]


@on_each_mesh
@typical("scheme", [SCHEME], slow=[(), NORM_MATCHED])
def test_initial_parameters_are_equal_bit_for_bit(mesh, scheme):
    one = program(1, 1).initial_state(3, scheme).params
    many = program(*mesh).initial_state(3, scheme).params
    jax.tree.map(np.testing.assert_array_equal, one, many)


@on_each_mesh
def test_losses_are_equal(mesh):
    one, tested_one = ten_steps(1, 1)
    many, tested_many = ten_steps(*mesh)
    np.testing.assert_allclose(many, one, rtol=1e-5)
    assert tested_many.count == tested_one.count == 360
    accuracies = [tested.values["accuracy"] for tested in (tested_one, tested_many)]
    assert accuracies[1] == pytest.approx(accuracies[0], abs=1 / 360)


def test_parameters_and_their_moments_are_cut():
    """By "fsdp" along inputs, and by "tensor" along heads and hidden units."""
    p = program(2, 2, 2)
    state = p.initial_state(0, SCHEME)
    attention, fc1 = state.params["block_0"]["attention"], state.params["block_0"]["mlp"]["fc1"]
    assert fc1["kernel"].sharding.spec == P("fsdp", "tensor")
    shards = (attention["query"]["kernel"], attention["out"]["kernel"], fc1["bias"])
    shapes = [shard.addressable_shards[0].data.shape for shard in shards]
    assert shapes == [(16, 1, 16), (1, 16, 16), (64,)]
    moments = jax.tree.leaves(jax.tree.map(lambda x: x.sharding.spec, state.opt_state))
    assert P("fsdp", "tensor") in moments
    where = [jax.tree.map(lambda x: x.sharding, tree) for tree in (state, p.shapes)]
    assert where[0] == where[1]


def test_rewrite_keeps_shardings_and_values():
    """On a committed, sharded tree, and inside jit with out_shardings."""
    p = program(2, 2, 2)
    params = p.initial_state(0, ()).params
    key = jax.random.key(9)
    expected = mimetic_jax.rewrite(
        key, program(1, 1).initial_state(0, ()).params, SCHEME, grid=(2, 2)
    )
    rewritten = mimetic_jax.rewrite(key, params, SCHEME, grid=(2, 2))
    where = jax.tree.map(lambda x: x.sharding, params)
    assert jax.tree.map(lambda x: x.sharding, rewritten) == where
    jax.tree.map(np.testing.assert_array_equal, rewritten, expected)
    replicated = jax.device_put(key, NamedSharding(p.mesh, P()))
    again = mimetic_jax.rewrite(replicated, params, SCHEME, grid=(2, 2))
    jax.tree.map(np.testing.assert_array_equal, again, expected)
    inside = jax.jit(
        lambda key, params: mimetic_jax.rewrite(key, params, SCHEME, grid=(2, 2)),
        out_shardings=where,
    )(key, params)
    found, truth = (
        np.einsum("dhk,hke->de", *(attention[role]["kernel"] for role in ("value", "out")))
        for attention in (tree["block_0"]["attention"] for tree in (inside, expected))
    )
    np.testing.assert_allclose(found, truth, atol=1e-5)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("scheme", [Mimetic(), ZeroOut(), NormMatched(Mimetic())])
def test_leaves_of_a_default_device_stay_there(scheme, commit):
    """Uncommitted, so that they go where other arrays are."""
    second = jax.devices()[1]
    with jax.default_device(second):
        shapes = dict.fromkeys(("query", "key", "value"), (16, 2, 8)) | {"out": (2, 8, 16)}
        tree = {name: {"kernel": jnp.ones(shape)} for name, shape in shapes.items()}
        tree["out"]["bias"] = jnp.ones(16)
    tree = jax.device_put(tree, second) if commit else tree
    for leaf in jax.tree.leaves(mimetic_jax.rewrite(jax.random.key(0), tree, scheme)):
        assert (leaf.devices(), leaf.committed) == ({second}, commit)


@pytest.fixture
def explicit_mesh():
    with jax.set_mesh(jax.make_mesh((2, 2), ("d", "t"), devices=jax.devices()[:4])):
        yield


def sharded(**kernels):
    return {
        name: {"kernel": jax.device_put(jnp.ones(shape), P(*axes))}
        for name, (shape, axes) in kernels.items()
    }


@pytest.mark.usefixtures("explicit_mesh")
def test_fused_leaves_on_explicit_axes():
    """JAX refuses to reshape or slice them where they are sharded."""
    kernels = {"qkv": ((32, 64), ("d", "t")), "proj": ((32, 32), ("t", "d"))}
    tree = {"attn": sharded(**kernels)}
    form = {
        "rules": attention_rules(fused="qkv", out="proj", flat=True, grouped=True),
        "num_heads": 4,
        "num_kv_heads": 2,
    }
    key = jax.random.key(0)
    new = mimetic_jax.rewrite(key, tree, NOISE, **form)
    plain = mimetic_jax.rewrite(key, jax.tree.map(np.asarray, tree), NOISE, **form)
    jax.tree.map(np.testing.assert_array_equal, new, plain)
    jitted = jax.jit(lambda tree: mimetic_jax.rewrite(key, tree, NOISE, **form))(tree)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), jitted, plain)
    for one in (new, jitted):
        assert jax.tree.map(jax.typeof, one) == jax.tree.map(jax.typeof, tree)


@pytest.mark.usefixtures("explicit_mesh")
def test_stacked_leaves_on_explicit_axes_under_jit():
    kernels = dict.fromkeys(("query", "key"), ((2, 32, 4, 8), (None, "d", "t", None)))
    tree = sharded(**kernels)
    scheme, rules = Layers(NOISE, 0.5, 1), attention_rules(stacked=True)
    key = jax.random.key(0)
    new = jax.jit(lambda tree: mimetic_jax.rewrite(key, tree, scheme, rules=rules))(tree)
    assert jax.tree.map(jax.typeof, new) == jax.tree.map(jax.typeof, tree)
    assert [bool((layer == 1).all()) for layer in new["query"]["kernel"]] == [True, False]


@pytest.mark.parametrize("check_vma", [True, False])
def test_a_shard_is_not_drawn_as_if_it_were_whole(check_vma):
    """Else all devices would draw the same heads."""
    kernel = np.ones((16, 8, 4), np.float32)
    inside = jax.shard_map(
        lambda tree: mimetic_jax.rewrite(jax.random.key(0), tree, NOISE),
        mesh=jax.make_mesh((8,), ("model",), axis_types=(jax.sharding.AxisType.Auto,)),
        in_specs=P(None, "model"),
        out_specs=P(None, "model"),
        check_vma=check_vma,
    )
    with pytest.raises(mimetic_jax.InputError, match="shard over the mesh axis model"):
        inside({name: {"kernel": kernel} for name in ("query", "key")})


@pytest.mark.slow
def test_many_traced_blocks_of_two_shapes_do_not_hang():
    """Sharded outputs, eight devices, more LAPACK calls than cores, a clean environment.

    One batched call a layer is what deadlocks XLA's thread pool here.
    """
    mesh = make_mesh(8, 1)
    cut = NamedSharding(mesh, P("data"))

    def both(key):
        keys = jax.random.split(key, 12)
        wide = [mimetic_jax.weights.query_key(k, 48, 3) for k in keys]
        narrow = [mimetic_jax.weights.value_out(k, 24, 2) for k in keys]
        return wide, narrow

    def fits(x):
        return cut if x.shape[0] % 8 == 0 else NamedSharding(mesh, P())

    where = jax.tree.map(fits, jax.eval_shape(both, jax.random.key(0)))
    wide, narrow = jax.jit(both, out_shardings=where)(jax.random.key(0))
    products = np.einsum("ldhk,lehk->lhde", *(np.stack(x) for x in zip(*wide, strict=True)))
    assert products.diagonal(axis1=2, axis2=3).mean() == pytest.approx(0.395, abs=0.03)
    assert np.isfinite(np.stack([out for _, out in narrow])).all()


def test_vmap_over_seeds_on_eight_devices_does_not_hang():
    mesh = make_mesh(8, 1)
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, P("data")))
    query, key = jax.jit(jax.vmap(lambda k: mimetic_jax.weights.query_key(k, 48, 3)))(keys)
    products = jnp.einsum("sdhk,sehk->shde", query, key)
    assert float(products.diagonal(axis1=2, axis2=3).mean()) == pytest.approx(0.395, abs=0.03)


def test_checkpoints_move_between_meshes(tmp_path):
    state = program(2, 2, 2).initial_state(0, SCHEME)
    saved = Checkpoints(tmp_path / "checkpoints", 2)
    saved.save(state, {}, 0)
    saved.close()
    for mesh in ((2, 4), (1, 1)):
        opened = Checkpoints(tmp_path / "checkpoints", 2)
        restored, _ = opened.restore(program(*mesh).shapes)
        opened.close()
        jax.tree.map(np.testing.assert_array_equal, restored, state)
        kernel = restored.params["block_0"]["mlp"]["fc1"]["kernel"]
        assert len(kernel.sharding.device_set) == np.prod(mesh)


def test_bad_meshes():
    with pytest.raises(InputError, match="data 3 x fsdp 2 x tensor 1 doesn't fit 8 devices"):
        make_mesh(3, 2)
    with pytest.raises(InputError, match="data 0"):
        make_mesh(0, 1)
    with pytest.raises(InputError, match="tensor 4 does not divide 2"):
        program(2, 1, 4)
    config = default("text")
    config.data.name, config.steps = "ptb_word", 10
    config.model.update(width=18, depth=1, heads=2)
    info = TASKS[config.task].describe(config)  # of 10,000 words
    with pytest.raises(InputError, match="fsdp 4 divides no parameter that"):
        program_of(config, dataclasses.replace(info, vocabulary=9_999), make_mesh(2, 4))
    tree = {"kernel": jnp.zeros((6, 5))}
    with pytest.raises(InputError, match=r"\('fsdp', None\) doesn't fit kernel of shape \(6, 5\)"):
        shardings(tree, make_mesh(2, 4), [("kernel", ("fsdp", None))])
    with pytest.raises(InputError, match=r"sharding of kernel must be .* got 'fspd'"):
        shardings(tree, make_mesh(2, 4), [("kernel", "fspd")])
    assert shardings(tree, make_mesh(2, 4), [("kernel", "fsdp")])["kernel"].spec == P()
