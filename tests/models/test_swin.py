import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from mimetic_jax.models import Swin
from mimetic_jax.models.swin import Block
from mimetic_jax.rules import paths
from mimetic_jax.train.cluster.mesh import shardings
from tests.golden import windows
from tests.models.test_contract import SMALL, SWIN_T
from tests.models.values import filled

KEY = jax.random.key(0)
MICROSOFT = {"num_classes": 1000, "depths": (2, 2, 2, 2)}


def images(batch=2, side=8):
    return jax.random.normal(jax.random.key(1), (batch, side, side, 3))


@functools.cache
def shapes_of(model, side=8):
    return jax.eval_shape(model.init, KEY, jnp.zeros((1, side, side, 3)))["params"]


@pytest.mark.parametrize("case", windows.CASES)
def test_logits_are_those_of_the_originals(golden, case):
    model, x = Swin(windows.CLASSES, **windows.CASES[case]["fields"]), windows.images(case)
    found = jax.jit(model.apply)(filled(model, x, windows.weight), x)
    np.testing.assert_allclose(found, golden("windows")[case], atol=1e-5)


def blocks_called(model, side):
    """(shift, rate of dropped paths) of each block, in order."""
    called = []

    def record(call, arguments, options, context):
        if isinstance(context.module, Block):
            called.append(arguments[1:])
        return call(*arguments, **options)

    with nn.intercept_methods(record):
        jax.eval_shape(model.init, KEY, jnp.zeros((1, side, side, 3)))
    return called


def test_every_other_block_is_shifted():
    """By ⌊W/2⌋; where one window covers the grid, in the form for CIFAR alone."""
    shifts = [shift for shift, _ in blocks_called(Swin(**MICROSOFT), 224)]
    assert shifts == 3 * [0, 3] + 2 * [None]
    called = blocks_called(Swin(10, **SWIN_T, drop_path=0.22), 32)
    assert [shift for shift, _ in called] == 6 * [0, 2]
    # Dropped paths rise linearly over all stages.
    np.testing.assert_allclose([rate for _, rate in called], 0.02 * np.arange(12), atol=1e-12)


def test_initial_values_of_both_forms():
    fields = {**SMALL["swin"], "width": 64, "head_dim": 32, "window": 4, "depths": (1, 1)}
    x, fields["downscaling"] = images(side=16), (2, 2)

    @functools.partial(jax.jit, static_argnums=0)
    def drawn(model):
        params = model.init(KEY, x)["params"]
        block, merge = params["stage_1"]["block_0"], params["stage_1"]["merge"]
        attention = block["attention"]
        table = attention.get("relative_bias", attention.get("shared_bias"))
        return table, attention["query"]["kernel"], block["mlp"]["fc1"]["bias"], merge["kernel"]

    table, query, bias, merge = drawn(Swin(**fields))
    assert not bias.any()
    for leaf in (table, query, merge):
        assert float(leaf.std()) == pytest.approx(0.02, rel=0.15)
    table, query, bias, merge = drawn(Swin(**fields, form="cifar"))
    assert float(table.std()) == pytest.approx(1.0, rel=0.25)  # of 49 numbers
    for leaf, fan_in in ((query, 128), (bias, 128), (merge, 256)):
        assert float(jnp.abs(leaf).max()) <= fan_in**-0.5
        assert float(leaf.std()) == pytest.approx((3 * fan_in) ** -0.5, rel=0.1)


@pytest.mark.parametrize("scan", [False, True])
def test_sharding(scan):
    """Heads and hidden units over "tensor", the other side of their kernels over "fsdp"."""
    shapes = shapes_of(Swin(**MICROSOFT, scan=scan), 224)
    mesh = AbstractMesh((2, 4, 2), ("data", "fsdp", "tensor"))
    placed, _ = paths.flatten(shardings(shapes, mesh, Swin.traits.sharding))
    found = {path: sharding.spec for path, sharding in placed}
    block = "stage_2/blocks" if scan else "stage_2/block_1"
    lead = (None,) if scan else ()
    assert found[f"{block}/attention/query/kernel"] == PartitionSpec(*lead, "fsdp", "tensor", None)
    assert found[f"{block}/attention/out/kernel"] == PartitionSpec(*lead, "tensor", None, "fsdp")
    assert found[f"{block}/mlp/fc1/kernel"] == PartitionSpec(*lead, "fsdp", "tensor")
    assert found[f"{block}/attention/relative_bias"] == PartitionSpec()
    assert found["stage_2/merge/kernel"] == PartitionSpec("fsdp", None)


def test_weight_decay_spares_what_the_original_spares():
    for model, side in ((Swin(**MICROSOFT), 224), (Swin(10, **SWIN_T), 32)):
        leaves, _ = paths.flatten(shapes_of(model, side))
        spared = {path for path, _ in leaves if re.search(Swin.traits.no_decay, path)}
        tables = {path for path, _ in leaves if path.endswith(("relative_bias", "shared_bias"))}
        assert len(tables) == sum(model.depths)
        one_dimensional = {path for path, leaf in leaves if "kernel" not in path}
        assert spared == one_dimensional | tables
