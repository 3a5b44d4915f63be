import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from mimetic_jax import InputError
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.checkpoint import Checkpoints


def state(step):
    kernel = jax.random.normal(jax.random.key(step), (300, 40))
    return TrainState(
        step=jnp.int32(step),
        params={"kernel": kernel},
        opt_state={"mu": kernel.astype(jnp.bfloat16)},
    )


SHAPES = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0)
)


@pytest.fixture
def folder(tmp_path):
    """Checkpoints of steps 1, 2, 3, of which 2 are kept."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2)
    for step in (1, 2, 3):
        checkpoints.save(state(step), {"seconds": float(step)}, step)
    checkpoints.close()
    return tmp_path / "checkpoints"


def restored(folder):
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        return checkpoints.restore(SHAPES)


def test_newest_comes_back_bit_for_bit(folder, tmp_path):
    assert restored(tmp_path / "none") is None
    found, record = restored(folder)
    assert record["seconds"] == 3.0
    jax.tree.map(np.testing.assert_array_equal, found, state(3))
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3"]
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        older = checkpoints.variables(2)
    jax.tree.map(np.testing.assert_array_equal, older, state(2).variables)


def largest_file(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return max(files, key=lambda path: path.stat().st_size)


def truncate(folder):
    path = largest_file(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove_file(folder):
    largest_file(folder).unlink()


@pytest.mark.parametrize("damage", [truncate, remove_file])
def test_what_cannot_be_restored_is_named_and_stays(folder, damage):
    damage(folder / "3" / "state")
    with pytest.raises(InputError, match=rf"checkpoint 3 in .* move {folder}/3 away, and training"):
        restored(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3"]
    (folder / "3").rename(folder.parent / "away")
    found, record = restored(folder)
    jax.tree.map(np.testing.assert_array_equal, found, state(2))
    assert record["seconds"] == 2.0


def test_a_storage_that_times_out_costs_no_checkpoint(folder, monkeypatch):
    def slow(*_, **__):
        raise TimeoutError("no answer for 60 s")

    with monkeypatch.context() as patch:
        patch.setattr(ocp.CheckpointManager, "restore", slow)
        with pytest.raises(InputError, match=r"no answer for 60 s.*: try again if the storage"):
            restored(folder)
    assert restored(folder)[1]["seconds"] == 3.0


def test_a_record_can_be_read_alone(folder):
    truncate(folder / "3" / "state")
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        assert [checkpoints.record(step)["seconds"] for step in checkpoints.steps()] == [2.0, 3.0]
        (folder / "3" / "record" / "metadata").write_bytes(b"\xff")
        with pytest.raises(InputError, match=rf"can't be restored .* or move {folder}/3 away"):
            checkpoints.record(3)


def test_a_full_disk_is_told_and_what_was_there_stays(folder, full_disk):
    checkpoints = Checkpoints(folder)
    with full_disk(20_000):
        checkpoints.save(state(4), {"seconds": 4.0}, 4)
        with pytest.raises(InputError, match=r"couldn't be written .*File too large"):
            checkpoints.wait()
    checkpoints.close()
    assert restored(folder)[1]["seconds"] == 3.0
