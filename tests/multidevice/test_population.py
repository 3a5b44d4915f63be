"""Members spread over devices are the members of one device."""

import jax
import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax.train.chunk import initial_members
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.state import stream
from mimetic_jax.train.store.chunks import Members


def config_of(members, chunk=8):
    config = default()
    config.members, config.chunk = members, chunk
    config.batch, config.steps, config.max_dispatch = 16, 4, 4
    config.model = model("vit", width=16, depth=1, heads=2, patch=4, dropout=0.1)
    config.optimizer.name, config.optimizer.weight_decay = "sgd", 0.0
    config.eval.batch = 180
    config.log_every = config.checkpoint_every = 2
    return config


def on(devices, workdir, chunk):
    comparison = Comparison(
        config_of(11, chunk), lambda line: None, devices=jax.devices()[:devices]
    )
    comparison.train(workdir)
    return list(Members.of(workdir, "run").chunks())


@pytest.mark.slow
def test_eight_devices_have_the_members_of_one(tmp_path):
    """The second chunk of three members is filled up for eight devices, and what fills is gone."""
    (alone,), spread = on(1, tmp_path / "alone", 11), on(8, tmp_path / "spread", 8)
    assert [len(chunk.seeds) for chunk in spread] == [8, 3]
    for path, leaf in alone.final.items():
        found = np.concatenate([chunk.final[path] for chunk in spread])
        np.testing.assert_allclose(found, leaf, atol=1e-6, err_msg=path)
    for name, (_, values) in alone.curve.items():
        found = np.concatenate([chunk.curve[name][1] for chunk in spread])
        np.testing.assert_allclose(found, values, rtol=1e-5)


@pytest.mark.slow
def test_a_comparison_spreads_its_members():
    comparison = Comparison(config_of(8), say=lambda line: None)
    program = comparison.arms["run"].program
    assert program.mesh.shape["member"] == 8
    start = initial_members(program, comparison.arms["run"].config, np.arange(8))
    for leaf in jax.tree.leaves(start):
        assert {shard.data.shape[0] for shard in leaf.addressable_shards} == {1}


def test_devices_exchange_nothing():
    arm = Comparison(config_of(8), say=lambda line: None).arms["run"]
    program = arm.program
    placed = arm.data
    arrays = program.feed.session(placed, stream(0, "data"), 0, program.steps).arrays()
    text = program.together(8, arrays).as_text()
    assert not [name for name in ("all-reduce", "all-gather", "all-to-all") if f" {name}(" in text]
