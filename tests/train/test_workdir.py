"""What a workdir holds: damage, copies and other data are one line each."""

import concurrent.futures
import dataclasses
import json
import shutil
import time

import jax
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis import curves
from mimetic_jax.train import config as configs
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.group import Group
from mimetic_jax.train.record import Record
from mimetic_jax.train.settings import check_settings
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.runs import Run
from tests.training import killed, quiet, trained

DAMAGE = {
    "garbage": b"<<<<<<< mine\n",
    "empty": b"",
    "a list": b"[]\n",
    "a number": b"3\n",
    "null": b"null\n",
    "other fields": b'{"step": "3", "arms": [], "seeds": 4, "size": "x"}\n',
    "half": b'{"step": 3, "na\n',
    "not UTF-8": b"\xff\xfe\x00\n",
    "NUL": b"\0" * 64 + b"\n",
    "deep": b"[" * 100_000,
}


def contents(workdir):
    """Every file of a folder by its name, and every other entry."""
    return {
        str(path.relative_to(workdir)): path.read_bytes() if path.is_file() else None
        for path in workdir.rglob("*")
    }


def refused(call, workdir, name):
    before = contents(workdir)
    with pytest.raises(InputError) as caught:
        call(workdir)
    assert name in str(caught.value)
    assert contents(workdir) == before


def record_of(seed, curve=((0, 12.5), (12, 25.0))):
    about = {"arm": "run", "score": "accuracy", "seconds": 1.5}
    return Record(seed=seed, value=curve[-1][1], curve=curve, **about)


def finished_runs(comparison, workdir):
    """A workdir of two finished runs; nothing is trained for it."""
    comparison.runs(workdir).checked_claim().write(workdir)
    for seed in comparison.config.seeds:
        metrics = Run.of(workdir, "run", seed).metrics
        metrics.append({"step": 4, "loss": 2.0})
        metrics.append({"step": 12, "eval_count": 1, "record": record_of(seed).to_json()})


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_named_and_nothing_is_deleted(tiny, tmp_path, damage):
    comparison, run = quiet(tiny(seeds=(0, 1))), Run.of(tmp_path, "run", 0)
    finished_runs(comparison, tmp_path)
    (run.folder / "group.json").write_bytes(damage)
    refused(lambda workdir: run.group, tmp_path, "group.json")
    (tmp_path / "config.json").write_bytes(damage)
    refused(comparison.table, tmp_path, "config.json")


def test_jobs_that_start_at_once_are_all_in_the_claim(tiny, tmp_path, monkeypatch):
    """Each has seeds of its own, and reads the claim before another one has written its."""
    write = Claim.write

    def slow(claim, folder):
        time.sleep(0.3)
        write(claim, folder)

    monkeypatch.setattr(Claim, "write", slow)
    jobs = [quiet(tiny(seeds=(seed,))) for seed in range(3)]
    with concurrent.futures.ThreadPoolExecutor() as threads:
        list(threads.map(lambda job: job.runs(tmp_path).claim(), jobs))
    assert list(Claim.read(tmp_path).config["seeds"]) == [0, 1, 2]


def test_runs_on_other_data_are_in_no_table(tiny, tmp_path):
    comparison = quiet(tiny(seeds=(0,)))
    finished_runs(comparison, tmp_path)
    claim = comparison.runs(tmp_path).checked_claim()
    record = dataclasses.replace(record_of(0), data="x").to_json()
    Run.of(tmp_path, "run", 0).metrics.append({"step": 12, "eval_count": 1, "record": record})
    dataclasses.replace(claim, data={"run": "y"}).write(tmp_path)
    for call in (comparison.table, curves.read):
        refused(call, tmp_path, "with other data (fingerprint x there, y here)")


@pytest.mark.slow
def test_lines_that_were_lost_change_no_score(tiny, finished, tmp_path):
    """Checkpoints know every evaluation: the metrics of a stopped run may be gone."""
    with killed(9):
        trained(tiny(), tmp_path)
    Run.of(tmp_path, "run", 0).metrics.rewrite([])
    comparison = quiet(tiny())
    table = str(comparison.table(finished))
    assert str(comparison.train(tmp_path)).split("|")[9:12] == table.split("|")[9:12]
    found, expected = (Run.of(folder, "run", 0).record() for folder in (tmp_path, finished))
    assert (found.value, found.curve, found.loss) == (expected.value, expected.curve, expected.loss)


@pytest.mark.parametrize("part", ["", "checkpoints"])
def test_a_copied_run_is_no_other_seed(tiny, workdir, part):
    shutil.copytree(workdir / "runs/run/0" / part, workdir / "runs/run/1" / part)
    with pytest.raises(InputError, match=r"is of (arm )?run seed 0"):
        quiet(tiny(seeds=(0, 1))).train(str(workdir))


@pytest.mark.slow
def test_data_elsewhere_with_the_same_content_continue(text, words, tmp_path):
    config = text(seeds=(0, 1))
    quiet(text(seeds=(0,))).train(tmp_path / "workdir")
    config.data.dir = str(shutil.copytree(words, tmp_path / "moved"))
    assert "| run" in str(quiet(config).train(tmp_path / "workdir"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_enable_x64", True),
        ("jax_default_prng_impl", "rbg"),
        ("jax_threefry_partitionable", False),
        ("jax_random_seed_offset", 1),
        ("jax_disable_jit", True),
        ("jax_numpy_dtype_promotion", "strict"),
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


@pytest.mark.parametrize("flag", ["--xla_cpu_enable_fast_math=true", "--xla_cpu_enable_fast_math"])
def test_fast_math_is_refused(flag, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false --a=b")
    check_settings()
    monkeypatch.setenv("XLA_FLAGS", f"--a=b {flag} --c=d")
    with pytest.raises(InputError, match=f"XLA_FLAGS has {flag}, which changes"):
        check_settings()


def test_a_precision_of_products_is_recorded_and_not_mixed(tiny):
    record = configs.to_json(tiny())
    assert configs.difference(record, configs.to_json(tiny())) is None
    with jax.default_matmul_precision("highest"):
        found = configs.difference(record, configs.to_json(tiny()))
    assert found == "matmul_precision is unset there and highest here"


def group_of(comparison, workdir):
    """The group of a run, without the lock of its folder."""
    comparison.runs(str(workdir)).claim()
    run = Run.of(str(workdir), "run", 0)
    return Group([run], comparison.arms, lambda line: None)


@pytest.fixture
def stopped(tiny, tmp_path):
    """A workdir whose run stopped at step 4; nothing is trained for it."""
    group = group_of(quiet(tiny()), tmp_path)
    group.journal.step = 4
    group.journal.runs[0].metrics.append({"step": 4, "loss": 2.3})
    group._states = group._states.replace(step=group._states.step + 4)
    group.save()
    group.checkpoints.close()
    return tmp_path


def test_a_checkpoint_of_another_config_is_not_continued(tiny, stopped):
    """Whether config.json is gone or is that of the new config."""
    path, run = stopped / "config.json", Run.of(str(stopped), "run", 0)
    before = run.metrics.path.read_bytes()
    claim = json.loads(path.read_text())
    path.unlink()
    other = quiet(tiny(batch=16))
    for call in (other.train, other.table, other.evaluate):
        with pytest.raises(InputError, match="has runs, but not their config"):
            call(str(stopped))
    assert not path.exists()
    path.write_text(json.dumps({**claim, "config": configs.to_json(other.config)}))
    words = "belongs to a different config .batch is 32 there and 16 here.: choose another"
    with pytest.raises(InputError, match=words):
        other.train(str(stopped))
    assert run.metrics.path.read_bytes() == before


def test_what_may_change_in_a_workdir_may_change_after_a_checkpoint(tiny, stopped):
    group = group_of(quiet(tiny(together=2, seeds=(0, 1), keep_checkpoints=1)), stopped)
    assert group.journal.step == 4
    group.checkpoints.close()
