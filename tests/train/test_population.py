"""Populations: a member is the run of its seed, whatever the other members are."""

import shutil

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs.default import default, model
from mimetic_jax.analysis.plan import describe
from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes import MeanShift, Mimetic, SinCos
from mimetic_jax.train import chunk as chunks
from mimetic_jax.train.cluster import preemption
from mimetic_jax.train.store.chunks import Members
from mimetic_jax.train.store.runs import Run
from mimetic_jax.tree import paths
from tests.training import quiet


def config_of(**overrides):
    config = default()
    config.members, config.chunk = 3, 2
    config.batch, config.steps, config.max_dispatch = 32, 6, 2
    config.model = model("tests.plugged:TinyBatchNorm")
    config.data.augment.crop = 1
    # Adam would make steps of rounding errors where a gradient is zero, as that of keys' biases is.
    config.optimizer.name, config.optimizer.learning_rate = "sgd", 0.1
    config.optimizer.weight_decay = 0.0
    config.eval.batch, config.eval.every = 180, 4
    config.log_every = config.checkpoint_every = 2
    config.update_from_flattened_dict(overrides)
    return config


def vit_of(**overrides):
    config = config_of(**overrides)
    config.model = model("vit", width=16, depth=1, heads=2, patch=4, pool="mean", dropout=0.1)
    return config


def trained(config, workdir, *say):
    quiet(config, *say).train(workdir)
    return list(Members.of(str(workdir), "run").chunks())


def assert_same(ours, theirs):
    assert [chunk.seeds.tolist() for chunk in ours] == [chunk.seeds.tolist() for chunk in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for tree in ("initial", "final"):
            jax.tree.map(np.testing.assert_array_equal, getattr(one, tree), getattr(other, tree))
        for name, (steps, values) in one.curve.items():
            np.testing.assert_array_equal(steps, other.curve[name][0])
            np.testing.assert_array_equal(values, other.curve[name][1])


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A finished population, to be read or copied."""
    workdir = tmp_path_factory.mktemp("whole") / "workdir"
    trained(config_of(), workdir)
    return workdir


@pytest.fixture
def whole(workdir):
    return list(Members.of(str(workdir), "run").chunks())


@pytest.mark.parametrize(
    "config",
    [
        config_of(),
        pytest.param(config_of(accumulate=2), marks=pytest.mark.slow),
        pytest.param(
            vit_of(scheme=(SinCos(), Mimetic(), MeanShift(per_input=True))), marks=pytest.mark.slow
        ),
    ],
    ids=["running averages", "accumulated", "factorized"],
)
def test_a_member_is_the_run_of_its_seed(config, tmp_path):
    """Its start, order of examples, augmentation, dropout and running averages."""
    chunks = trained(config, tmp_path)
    alone = config.copy_and_resolve_references()
    alone.members, alone.seeds = 0, (2,)
    comparison = quiet(alone)
    comparison.train(tmp_path / "alone")
    run = Run.of(tmp_path / "alone", "run", 2)
    state = comparison.restored(run)
    for path, leaf in paths.flatten(state.params)[0]:
        np.testing.assert_allclose(chunks[1].final[path][0], leaf, atol=1e-5, err_msg=path)
    for name, (steps, values) in chunks[1].curve.items():
        records = [r for r in run.evaluations() if r["step"] in steps]
        np.testing.assert_allclose(values[0], [r[f"eval_{name}"] for r in records], atol=1e-5)


@pytest.mark.parametrize(
    "scheme",
    [pytest.param((), marks=pytest.mark.slow), (MeanShift(), MeanShift(per_input=True))],
)
def test_members_start_where_their_runs_do(scheme):
    config = vit_of(scheme=scheme)
    program = quiet(config).arms["run"].program
    together = chunks.initial_members(program, config, np.arange(3))
    for path, leaf in paths.flatten(program.initial_state(2, scheme))[0]:
        found = dict(paths.flatten(together)[0])[path][2]
        np.testing.assert_allclose(found, leaf, atol=1e-7, err_msg=path)


@pytest.mark.slow
def test_members_of_a_text(tmp_path):
    """Every member's test has its own sums."""
    config = default("text")
    config.data.name, config.data.length, config.data.valid = "python_docs", 16, 16
    config.batch, config.steps, config.members = 4, 2, 2
    config.model.update(width=8, depth=1, heads=1)
    config.eval.batch = 200
    (chunk,) = trained(config, tmp_path)
    alone = config.copy_and_resolve_references()
    alone.members, alone.seeds = 0, (1,)
    quiet(alone).train(tmp_path / "alone")
    record = Run.of(tmp_path / "alone", "run", 1).evaluations()[-1]
    for name, (_, values) in chunk.curve.items():
        np.testing.assert_allclose(values[1, -1], record[f"eval_{name}"], rtol=1e-5)
    assert not np.allclose(*chunk.curve["bpc"][1][:, -1], rtol=1e-6)


@pytest.mark.parametrize("calls", [pytest.param(2, marks=pytest.mark.slow), 6])
def test_a_stop_changes_nothing(calls, tmp_path, whole, monkeypatch):
    asked = iter([False] * (calls - 1) + [True])
    monkeypatch.setattr(preemption, "should_stop", lambda: next(asked, False))
    with pytest.raises(preemption.Preempted, match="is saved"):
        trained(config_of(), tmp_path)
    said = []
    assert_same(trained(config_of(), tmp_path, said.append), whole)
    assert any("continues at step" in line for line in said)
    left = {path.name for path in (tmp_path / "population" / "run").iterdir()}
    assert not [name for name in left if name.startswith("training")]


def test_a_population_grows(tmp_path, whole):
    """Members that are trained stay; the size of the chunks does too, whatever is asked for."""
    trained(config_of(members=2), tmp_path)
    said = []
    assert_same(trained(config_of(chunk=3), tmp_path, said.append), whole)
    assert any("2 at a time" in line for line in said)


def test_the_table_has_a_row_of_all_members(workdir, tmp_path):
    shutil.copytree(workdir, tmp_path / "workdir")
    results = quiet(config_of()).train(tmp_path / "workdir")
    assert "| 3 " in str(results)
    folders = [row["members"] for row in results.to_dicts()]
    assert folders == 3 * [f"{tmp_path}/workdir/population/run"]
    assert "| 2 " in str(quiet(config_of(members=2)).table(tmp_path / "workdir"))


def test_a_chunk_that_does_not_fit_is_smaller(tmp_path, whole, monkeypatch):
    comparison = quiet(config_of())
    comparison.open()
    arm = comparison.arms["run"]
    two = chunks._bytes(arm.program, arm.data, 2)
    monkeypatch.setattr(chunks, "_free", lambda: 1.5 * two)  # half of it may be used
    said = []
    trained(config_of(members=2), tmp_path, said.append)
    assert any("1 members at a time instead of 2" in line for line in said)


def test_a_chunk_fits_the_memory_of_each_device(monkeypatch):
    """Four devices with half of 1,000 free bytes each, where a member takes 100 on one of them."""
    monkeypatch.setattr(chunks, "_devices", lambda program: 4)
    monkeypatch.setattr(chunks, "_bytes", lambda program, data, members: 100 * members // 4)
    monkeypatch.setattr(chunks, "_free", lambda: 1000)
    config = ConfigDict({"chunk": 64, "members": 64})
    assert chunks.chosen_size(config, None, None, print) == 20


def test_a_plan_has_the_members():
    text = describe(quiet(config_of()))
    assert "1 arms x 3 members" in text
    assert "of each member on mesh" in text


def test_one_member_alone_is_refused(tmp_path):
    with pytest.raises(InputError, match="unknown run 'run/0'"):
        quiet(config_of()).train(tmp_path, "run/0")


def test_a_damaged_file_is_named_and_kept(workdir, tmp_path):
    shutil.copytree(workdir, tmp_path / "workdir")
    path = tmp_path / "workdir/population/run/members_00000000-00000001.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{path.name} is damaged"):
        quiet(config_of()).table(tmp_path / "workdir")
    assert path.read_bytes() == content


def test_members_of_other_data_are_not_mixed(workdir, tmp_path):
    shutil.copytree(workdir, tmp_path / "workdir")
    comparison = quiet(config_of(members=4))
    comparison.open()
    comparison.arms["run"].source.fingerprint = "another"
    for path in (None, tmp_path / "workdir" / "config.json"):
        path and path.unlink()
        with pytest.raises(InputError, match=r"with other data .* another here"):
            comparison.train(tmp_path / "workdir")


def test_a_gap_is_reported(tmp_path):
    members = Members.of(str(tmp_path), "run")
    members.folder.make()
    (members.folder / "members_00000002-00000003.npz").write(b"")
    with pytest.raises(InputError, match="no file of the members 0 to 1"):
        _ = members.trained


def test_a_member_that_diverges_has_no_score(tmp_path):
    """And leaves the others alone."""
    config = config_of(**{"optimizer.learning_rate": 1e38, "members": 2})
    said = []
    table = str(quiet(config, said.append).train(tmp_path))
    assert any("no longer finite: 0, 1" in line for line in said)
    assert table == "no finished run yet"
