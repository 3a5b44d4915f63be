"""What would make a run silently wrong, or lose it, is one line before anything is written."""

from __future__ import annotations

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimetic_jax import InputError
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train import config as configs
from mimetic_jax.train.books import Books
from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.settings import check_settings
from mimetic_jax.train.state import stream
from mimetic_jax.train.workdir.members import MembersFolder
from mimetic_jax.train.workdir.runs import Run
from tests.training import quiet, trained

NOT_FINITE = (math.nan, math.inf, -math.inf)


def fields(config, prefix=""):
    """Names of all fields that hold numbers or tuples, at every depth."""
    for name, value in config.items():
        if hasattr(value, "items"):
            yield from fields(value, f"{prefix}{name}.")
        elif isinstance(value, float | tuple) and name != "scheme":
            yield prefix + name


@pytest.mark.parametrize("value", NOT_FINITE)
def test_no_field_takes_a_number_that_is_not_finite(tiny, value):
    """Of tuples, no part does."""
    names = list(fields(tiny()))
    assert {"stall_seconds", "optimizer.betas", "data.mix.prob", "model.dropout"} <= {*names}
    for name in names:
        config = tiny()
        before = configs.to_json(config)
        for part in name.split(".")[:-1]:
            before = before[part]
        is_list = isinstance(before[name.rpartition(".")[2]], list)
        with config.ignore_type():
            config.update_from_flattened_dict({name: ((0.5, value),) if is_list else value})
        with pytest.raises(InputError, match=rf"{name} .*{value}.* is not finite") as caught:
            Comparison(config)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_neither_a_scheme_nor_an_arm_takes_it(tiny, value):
    with pytest.raises(InputError, match=r"scheme .*Mimetic.* is not finite"):
        Comparison(tiny(scheme=(Mimetic(alpha_qk=value),)))
    config = tiny()
    config.arms.other = {"optimizer": {"learning_rate": value}}
    with pytest.raises(InputError, match=f"arms.other.optimizer.learning_rate {value} is not"):
        Comparison(config)


@settings(deadline=None)
@given(
    st.integers(max_value=-1)
    | st.integers(min_value=2**32)
    | st.floats()
    | st.sampled_from([True, False, None, "", "0", (0,)])
)
def test_other_seeds_are_named(seed):
    """JAX makes the same key of 2^32 as of 0."""
    with pytest.raises(InputError, match="is not an integer in"):
        configs.check_seeds((1, seed))


@settings(deadline=None)
@given(st.lists(st.integers(0, 3) | st.integers(2**32 - 4, 2**32 - 1), min_size=1, max_size=4))
def test_seeds_that_pass_are_different_streams(seeds):
    if len(set(seeds)) < len(seeds):
        with pytest.raises(InputError, match="must be different numbers"):
            configs.check_seeds(seeds)
        return
    configs.check_seeds(seeds)
    keys = [jax.random.key_data(stream(seed, "init")) for seed in seeds]
    assert len({np.asarray(key).tobytes() for key in keys}) == len(seeds)


def test_bad_seeds_leave_the_workdir_alone(tiny, tmp_path):
    for seeds in [(0, 2**32), ("0",), (0.5,), (-1,)]:
        with pytest.raises(InputError, match="is not an integer in"):
            trained(tiny(seeds=seeds), tmp_path / "workdir")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_enable_x64", True),
        ("jax_default_prng_impl", "rbg"),
        ("jax_threefry_partitionable", False),
        ("jax_random_seed_offset", 1),
    ],
)
def test_settings_of_jax_that_change_numbers_are_refused(tiny, name, value):
    before = getattr(jax.config, name)
    check_settings()
    jax.config.update(name, value)
    try:
        with pytest.raises(InputError, match=f"{name.upper()} is {value}, .* it is {before}"):
            Comparison(tiny())
    finally:
        jax.config.update(name, before)


def test_a_precision_of_products_is_recorded_and_not_mixed(tiny):
    record = configs.to_json(tiny())
    assert configs.difference(record, configs.to_json(tiny())) is None
    with jax.default_matmul_precision("highest"):
        found = configs.difference(record, configs.to_json(tiny()))
    assert found == "matmul_precision is None there and highest here"


def books_of(comparison, workdir):
    """The books of a run, without the lock of its folder."""
    comparison.open()
    arm = comparison.arms["run"]
    run = Run.of(workdir, "run", 0)
    return Books(run, arm.config, arm.program, arm.data, print, arm.source.fingerprint)


@pytest.fixture
def stopped(tiny, tmp_path):
    """A workdir whose run stopped at step 4; nothing is trained for it."""
    comparison = quiet(tiny())
    comparison.claim(tmp_path)
    books = books_of(comparison, tmp_path)
    shapes = comparison.arms["run"].program.shapes
    state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype, device=x.sharding), shapes)
    books.save(state.replace(step=state.step + 4))
    books.close()
    books.run.metrics.append({"step": 4, "loss": 2.3})
    return tmp_path


def test_a_checkpoint_of_another_config_is_not_continued(tiny, stopped):
    """Whether config.json is gone or is that of the new config."""
    path, run = stopped / "config.json", Run.of(stopped, "run", 0)
    before = run.metrics.path.read_bytes()
    path.unlink()
    other = quiet(tiny(batch=16))
    words = "belongs to a different config .batch is 32 there and 16 here.: choose another"
    for call in (other.train, other.table, other.evaluate):
        with pytest.raises(InputError, match=words):
            call(stopped)
    assert not path.exists()
    path.write_text(json.dumps(configs.to_json(other.config)))
    with pytest.raises(InputError, match=words):
        other.train(stopped)
    assert run.metrics.path.read_bytes() == before


def test_what_may_change_in_a_workdir_may_change_after_a_checkpoint(tiny, stopped):
    config = tiny(together=2, seeds=(0, 1))
    (stopped / "config.json").unlink()
    comparison = quiet(config)
    comparison.claim(stopped)
    books = books_of(comparison, stopped)
    assert int(books.start().step) == 4
    books.close()


def test_a_finished_run_without_any_config_is_refused(tiny, tmp_path):
    run = Run.of(tmp_path, "run", 0)
    run.directory.mkdir(parents=True)
    run.metrics.append({"step": 12, "eval_count": 360, "finished": True})
    with pytest.raises(InputError, match=r"is finished, but neither .* has its config"):
        quiet(tiny()).train(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_members_of_another_config_are_not_continued(tiny, tmp_path):
    """Whether config.json is gone or is that of the new config."""
    config = tiny(members=2, scheme=())
    folder = MembersFolder.of(tmp_path, "run")
    folder.directory.mkdir(parents=True)
    record = configs.to_json(config)
    folder.choose(1, "a fingerprint", {**record, "batch": 64})
    words = "belongs to a different config .batch is 64 there and 32 here.: choose another"
    with pytest.raises(InputError, match=words):
        quiet(config).table(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(record))
    comparison = quiet(config)
    comparison.arms["run"].source.fingerprint = "a fingerprint"
    with pytest.raises(InputError, match=words):
        comparison.train(tmp_path)
    assert folder.config["batch"] == 64
