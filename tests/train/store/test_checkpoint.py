import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.store.checkpoint import Checkpoints, newest_record
from mimetic_jax.train.store.places import Place


def state(step):
    kernel = jax.random.normal(jax.random.key(step), (300, 40))
    return TrainState(
        step=jnp.int32(step),
        params={"kernel": kernel},
        opt_state={"mu": kernel.astype(jnp.bfloat16)},
    )


def shapes_of(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


SHAPES = shapes_of(state(0))


@pytest.fixture
def folder(tmp_path):
    """Checkpoints of steps 1, 2, 3, of which 2 are kept."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2, print)
    for step in (1, 2, 3):
        checkpoints.save(state(step), {"seconds": float(step)})
    checkpoints.close()
    return tmp_path / "checkpoints"


def restored(folder, said):
    checkpoints = Checkpoints(folder, 2, said.append)
    found = checkpoints.restore(SHAPES)
    if found:
        checkpoints.set_aside(after=int(found[0].step))
    checkpoints.close()
    return found


def test_newest_comes_back_bit_for_bit(folder):
    found, record = restored(folder, [])
    assert record["seconds"] == 3.0
    jax.tree.map(np.testing.assert_array_equal, found, state(3))
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3"]


def test_no_checkpoint(tmp_path):
    assert restored(tmp_path / "none", []) is None


def largest_file(folder):
    return max(
        (path for path in folder.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )


def truncate(folder):
    path = largest_file(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_byte(folder):
    path = largest_file(folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def remove_file(folder):
    largest_file(folder).unlink()


def empty(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.mark.parametrize("damage", [truncate, flip_a_byte, remove_file, empty])
def test_damage_falls_back_and_is_told(folder, damage):
    damage(folder / "3")
    said = []
    found, record = restored(folder, said)
    jax.tree.map(np.testing.assert_array_equal, found, state(2))
    assert record["seconds"] == 2.0
    assert any("checkpoint 3 is damaged" in line for line in said)
    assert (folder.parent / "damaged" / "3").exists()
    # The step can be written again.
    checkpoints = Checkpoints(folder, 2, print)
    checkpoints.save(state(3), {"seconds": 3.0})
    checkpoints.close()
    assert restored(folder, [])[1]["seconds"] == 3.0


def test_values_that_were_never_saved_are_noticed(folder):
    """Arrays may be wrong and still decode: the checksums taken on the device tell."""
    (folder / "3" / "state").rename(folder / "3" / "was")
    (folder / "2" / "state").rename(folder / "3" / "state")
    (folder / "3" / "was").rename(folder / "2" / "state")
    said = []
    with pytest.raises(InputError, match=r"none of the checkpoints \[3, 2\]"):
        restored(folder, said)
    assert all("checksums of 3 of 3 arrays differ" in line for line in said)


def test_all_damaged_stops_and_deletes_nothing(folder):
    for step in ("2", "3"):
        truncate(folder / step)
    with pytest.raises(InputError, match="delete that folder to start the run over"):
        restored(folder, [])
    assert {"2", "3"} <= {path.name for path in folder.iterdir()}


def test_a_record_that_was_changed_is_damage(folder):
    path = folder / "3" / "record" / "metadata"
    text = path.read_text()
    path.write_text(text.replace('"seconds": 3.0', '"seconds": 4.0'))
    assert path.read_text() != text
    said = []
    assert restored(folder, said)[1]["seconds"] == 2.0
    assert any("its record is not what was written" in line for line in said)


def test_the_record_of_the_newest_can_be_read_alone(folder):
    place = Place(folder)
    assert newest_record(place)["seconds"] == 3.0
    truncate(folder / "3" / "state")
    assert newest_record(place)["seconds"] == 3.0
    path = folder / "3" / "record" / "metadata"
    path.write_text(path.read_text().replace('"seconds": 3.0', '"seconds": 4.0'))
    assert newest_record(place)["seconds"] == 2.0
    assert newest_record(place, step=3) is newest_record(place, step=4) is None
    (folder / "2" / "record" / "metadata").write_bytes(b"\xff")
    assert newest_record(place) is newest_record(place / "none") is None


def test_a_full_disk_is_told_and_what_was_there_stays(folder, full_disk):
    checkpoints = Checkpoints(folder, 2, print)
    with full_disk(20_000):
        checkpoints.save(state(4), {"seconds": 4.0})
        with pytest.raises(InputError, match=r"couldn't be written .*File too large"):
            checkpoints.wait()
    checkpoints.close()
    assert restored(folder, [])[1]["seconds"] == 3.0


def test_the_best_stay_beside_the_newest(tmp_path):
    checkpoints = Checkpoints(tmp_path, 2, print, also=lambda steps: [s for s in steps if s == 3])
    for step in range(1, 7):
        checkpoints.save(state(step), {"seconds": 0.0})
    checkpoints.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "5", "6"]


def test_truth_values_are_summed_too(tmp_path):
    """As `optax.apply_if_finite` has in its state."""
    checkpoints = Checkpoints(tmp_path, 2, print)
    flagged = state(1).replace(opt_state={"finite": jnp.array([True, False])})
    checkpoints.save(flagged, {})
    checkpoints.wait()
    found, _ = checkpoints.restore(shapes_of(flagged))
    checkpoints.close()
    jax.tree.map(np.testing.assert_array_equal, found, flagged)
