"""Groups: each run that trains with others is the run alone, wherever the group stops."""

import contextlib
import functools
import itertools
import json
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.default import model
from mimetic_jax import InputError
from mimetic_jax.base.typed import from_json
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.journal import Journal, Saved
from mimetic_jax.train.runs import Runs
from mimetic_jax.train.start import initial_state, provenance_of
from mimetic_jax.train.state import augmentation_key, stream
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.files import Lines
from mimetic_jax.train.store.runs import Run, write_group
from mimetic_jax.train.tasks.task import Evaluation
from tests.training import quiet, tiny, unclocked
from tests.typical import typical


def trained(config, workdir):
    """Train a comparison: last state and records by arm and seed."""
    comparison = quiet(config)
    comparison.train(workdir)
    runs = [Run.of(workdir, arm, seed) for seed in config.seeds for arm in comparison.arms]
    return {(r.arm, r.seed): (comparison.restored(r), unclocked(r)) for r in runs}


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for run, (state, recorded) in found.items():
        other, others = expected[run]
        assert_allclose = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
        jax.tree.map(assert_allclose, (state.variables, state.ema), (other.variables, other.ema))
        assert recorded == [pytest.approx(line, rel=1e-5) for line in others]


def assert_same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.fixture
def vit():
    config = tiny(seeds=(0, 1), checkpoint_every=0, scheme=())
    config.model.update(dropout=0.2, drop_path=0.1)
    config.optimizer.eps = 1e-3  # a key's bias has no gradient but rounding: Adam would amplify it
    return config


def normalized(together=2):
    config = tiny(seeds=(0, 1), scheme=(), ema=0.9, together=together)
    config.model = model("tests.plugged:TinyBatchNorm", width=4)
    config.optimizer.eps = 1e-3
    return config


@pytest.fixture
def batch_norm():
    return normalized(together=1)


@pytest.fixture
def language(text):
    """A rate that makes the validation loss rise, so that the plateau rule lowers it."""
    config = text(seeds=(0, 1), scheme=(), checkpoint_every=0)
    config.model.dropout = 0.1
    config.optimizer.update(learning_rate=3e-2, schedule="constant", plateau="halve", eps=1e-3)
    config.eval.every = 1
    return config


@typical("kind", ["batch_norm"], slow=["vit", "language"])
def test_a_run_trained_with_others_is_the_run_alone(kind, request, tmp_path):
    """Also at another rate."""
    config = request.getfixturevalue(kind)
    config.arms.default, config.arms.slow = {}, {"optimizer": {"learning_rate": 1e-4}}
    alone = trained(config, tmp_path / "alone")
    config.together = 2
    assert_close(trained(config, tmp_path / "together"), alone)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The workdir of a group that nothing stopped, and its runs."""
    workdir = tmp_path_factory.mktemp("undisturbed")
    return workdir, trained(normalized(), workdir)


@contextlib.contextmanager
def killed_at(number, owner, method):
    """A kill where the so-manieth call of a method would begin."""
    original, calls = getattr(owner, method), itertools.count(1)

    def called(*args, **kwargs):
        if next(calls) == number:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    with mock.patch.object(owner, method, called), pytest.raises(KeyboardInterrupt):
        yield


@typical(
    "kill",
    [(2, Checkpoints, "save")],
    slow=[(1, Journal, "count_steps"), (4, Journal, "count_steps"), (4, Journal, "evaluated")],
)
def test_resume_equals_no_stop(tmp_path, undisturbed, kill):
    """Bit for bit, and as the group that it was, whatever `together` is by then."""
    with killed_at(*kill):
        trained(normalized(), tmp_path)
    assert_same(trained(normalized(together=1), tmp_path), undisturbed[1])


def test_a_kill_between_two_records_loses_none(tmp_path, undisturbed):
    lines = Lines.append

    def killed(self, record):
        if "record" in record and "/1/" in str(self.path):
            raise KeyboardInterrupt
        lines(self, record)

    with mock.patch.object(Lines, "append", killed), pytest.raises(KeyboardInterrupt):
        trained(normalized(), tmp_path)
    assert [Run.of(tmp_path, "run", seed).finished() for seed in (0, 1)] == [True, False]
    first = Run.of(tmp_path, "run", 0).record()
    found = trained(normalized(), tmp_path)
    assert Run.of(tmp_path, "run", 0).record() == first
    assert_same(found, undisturbed[1])


def test_a_start_from_a_run_of_a_group_is_from_its_lane(undisturbed):
    workdir, whole = undisturbed
    final, student = whole["run", 1][0].params, normalized(together=1)
    student.init_from, student.seeds = str(Run.of(workdir, "run", 1).folder), (5,)
    start = initial_state(quiet(student).arms["run"], 5, lambda line: None).params
    for name in ("conv", "norm"):
        for leaf, taken in zip(*map(jax.tree.leaves, (final.get(name), start.get(name))), strict=1):
            np.testing.assert_array_equal(leaf, taken)


@pytest.mark.slow
def test_a_run_that_diverges_stops_no_other(tmp_path, undisturbed):
    comparison = Comparison(normalized(), say=(said := []).append)
    task = comparison.arms["run"].program.task
    prepare, theirs = task.prepare, augmentation_key(stream(1, "data"))

    def poisoned(key, step, examples):
        images, *rest = prepare(key, step, examples)
        bad = (key == theirs) & (step >= 5)
        return jnp.where(bad, jnp.nan, images), *rest

    task.prepare = poisoned
    with pytest.raises(InputError, match="the loss of run seed 1 is no longer finite"):
        comparison.train(tmp_path)
    assert any("run seed 1: the loss is" in line and "at step 5" in line for line in said)
    assert not Run.of(tmp_path, "run", 1).finished()
    run = Run.of(tmp_path, "run", 0)
    found = {("run", 0): (comparison.restored(run), unclocked(run))}
    assert_close(found, {("run", 0): undisturbed[1]["run", 0]})


def test_a_loss_that_was_infinite_once_gives_no_record(tmp_path):
    """Nor after a stop: a run alone would have ended there."""
    comparison = quiet(tiny(seeds=(0, 1), together=2))
    comparison.arms.load_data()
    runs, arm = comparison.runs(tmp_path), comparison.arms["run"]
    made = [provenance_of(comparison.arms["run"], run.seed) for run in runs]
    before, after = (Journal(runs, made, [1, 1], arm.config, arm.program) for _ in range(2))
    losses = np.array([[2.0, 1.0, 1.0], [2.0, np.inf, 1.0]])
    assert list(before.count_steps({"loss": losses, "grad_norm": np.ones((2, 3))}, 1.0)) == runs[1:]
    after.resume(from_json(Saved, json.loads(json.dumps(before.saved())), "here"), before.step)
    assert list(after.lost()) == runs[1:]
    found = [Evaluation({"accuracy": 0.5, "loss": 1.0}, 10, "")] * 2
    assert after.evaluated(found, [], last=True)[1] == {}
    assert [run.finished() for run in runs] == [True, False]


@pytest.fixture
def groups(monkeypatch):
    """What would be trained at once, in order; nothing is trained."""
    found = []

    def trained_at_once(self, runs, label):
        found.append([(run.arm, run.seed) for run in runs])
        return []

    monkeypatch.setattr(Runs, "_train_group", trained_at_once)
    monkeypatch.setattr(Comparison, "table", lambda self, workdir: "")
    return found


def test_groups_are_the_next_runs_of_a_program(tmp_path, groups, monkeypatch):
    config = tiny(seeds=(0, 1), together=3)
    config.arms.a, config.arms.b = {"scheme": ()}, {}
    config.arms.wide = {"model": {"width": 32}}
    quiet(config).runs(str(tmp_path)).checked_claim().write(tmp_path)
    monkeypatch.setattr(Run, "finished", lambda run: (run.arm, run.seed) == ("b", 0))
    quiet(config).train(tmp_path)
    assert groups == [[("a", 0), ("a", 1), ("b", 1)], [("wide", 0), ("wide", 1)]]
    groups.clear()
    config.seeds, config.arms = (1,), {"b": {}}
    quiet(config).train(tmp_path)
    assert groups == [[("b", 1)]]


def test_what_joins_later_makes_groups_of_its_own(tmp_path, groups):
    config = tiny(seeds=(0, 1), together=2)
    quiet(config).runs(tmp_path).claim()
    began = [Run.of(tmp_path, "run", seed) for seed in (0, 1)]
    for run in began:
        run.folder.mkdir(parents=True)
    write_group(began)
    assert [run.group for run in began] == [tuple(began)] * 2
    config.seeds, config.together = (1, 2, 3, 0, 4), 4
    quiet(config).train(tmp_path)
    assert groups == [[("run", 0), ("run", 1)], [("run", 2), ("run", 3), ("run", 4)]]
    (began[1].folder / "group.json").unlink()  # as if killed before it was written
    groups.clear()
    quiet(config).train(tmp_path)
    assert groups == [[("run", 2), ("run", 3), ("run", 4)], [("run", 0), ("run", 1)]]


def test_runs_of_several_processes_cannot_train_at_once(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(InputError, match="together 2 needs a single process, not 2"):
        Comparison(tiny(together=2), say=lambda line: None)
