"""Several processes train as one; a failing one says why, and ends the others."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from mimetic_jax.train.store.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", ["images", "normalized", "text", "streamed"])
def test_two_processes_train_as_one(machine, data, losses, tmp_path, kind):
    found = {}
    for processes, devices, fsdp in ((1, 1, 1), (2, 4, 2)):
        workdir = tmp_path / f"{processes}x{devices}"
        machine.run(processes, devices, machine.flags(kind, workdir, data[kind], fsdp=fsdp))
        found[processes] = losses(workdir)
    (steps, tested), (other, other_tested) = found[1], found[2]
    assert len(steps) == len(other) == (24 if kind == "streamed" else 6)
    np.testing.assert_allclose(other, steps, rtol=1e-5)
    np.testing.assert_allclose(other_tested, tested, rtol=1e-5)
    # One process reads the newest checkpoint of two, and evaluates it to the same numbers.
    flags = machine.flags(kind, tmp_path / "2x4", data[kind])
    machine.run(1, 8, [*flags, "--mode=eval"])
    shown = f"{np.exp(tested[-1]):.3f}" if kind == "text" else f"{tested[-1]:.4f}"
    assert shown in machine.output()


@pytest.mark.parametrize("kind", ["text", "streamed"])
def test_a_stopped_run_continues_on_any_machine(machine, data, losses, tmp_path, kind):
    """SIGTERM in the middle; then fewer processes, or fewer devices, resume at the next step."""

    def flags(workdir):
        return machine.flags(kind, workdir, data[kind], steps=40, checkpoint_every=20)

    machine.run(1, 8, flags(tmp_path / "whole"))
    expected, tested = losses(tmp_path / "whole")
    run = Run.of(tmp_path / "stopped", "run", 0)
    code = machine.stop(machine.start([flags(tmp_path / "stopped")] * 2, 4), run.metrics, 5)
    assert code == 75, machine.output()[-5000:]
    assert "which is saved: the same command continues" in machine.output()
    stopped = len(losses(tmp_path / "stopped")[0])
    assert 5 <= stopped < 40
    for processes, devices in ((1, 8), (2, 2)):
        workdir = tmp_path / f"{processes}x{devices}"
        shutil.copytree(tmp_path / "stopped", workdir)
        machine.run(processes, devices, flags(workdir))
        assert f"continues at step {stopped}\n" in machine.output()
        found, found_tested = losses(workdir)
        assert len(found) == 40
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_allclose(found_tested, tested, rtol=1e-5)
        before = (tmp_path / "stopped" / "runs/run/0/metrics.jsonl").read_text().splitlines()
        after = (workdir / "runs/run/0/metrics.jsonl").read_text().splitlines()
        assert list(map(json.loads, after[: len(before)])) == list(map(json.loads, before))


def fail(machine, commands, code=2, **more):
    """The output of each process: one ends with this code, and JAX may end the others."""
    ended = machine.together(commands, 2, **more)
    codes = [found for found, _ in ended]
    assert code in codes, ended
    assert not {0, 75} & set(codes), ended
    return [text for _, text in ended]


def test_another_learning_rate(machine, data, tmp_path):
    flags = machine.flags("text", tmp_path / "run", data["text"])
    for text in fail(machine, [flags, [*flags, "--config.optimizer.learning_rate=0.5"]]):
        assert "error: the config of process 1 differs from that of process 0" in text
    assert not (tmp_path / "run").exists()


def test_another_text_of_the_same_length(machine, data, tmp_path):
    """Each process reads the same path on the disk of its own machine."""
    folders = [tmp_path / "machine_0", tmp_path / "machine_1"]
    for folder in folders:
        shutil.copytree(data["text"], folder / "data")
    file = folders[1] / "data" / "ptb.train.txt"
    words = file.read_text()
    file.write_text(words.replace(" dog ", " cat ", 1))
    assert file.read_text() != words
    flags = machine.flags("text", tmp_path / "run", "data")
    for text in fail(machine, [flags, flags], folders=folders):
        assert "error: the data of process 1 differs from that of process 0" in text
    assert not (tmp_path / "run").exists()


def test_data_that_one_process_lacks(machine, data, tmp_path):
    commands = [machine.flags("text", tmp_path / "run", d) for d in (data["text"], "/nowhere")]
    assert "error: no ptb_word in /nowhere" in fail(machine, commands)[1]


def test_a_workdir_that_cannot_be_written(machine, data, tmp_path):
    (tmp_path / "file").touch()
    flags = machine.flags("text", tmp_path / "file" / "run", data["text"])
    assert "run can't be written: Not a directory" in fail(machine, [flags, flags])[0]


def test_an_image_that_cannot_be_read(machine, data, tmp_path):
    """Only one process reads it, in the middle of training, while the other's devices wait."""
    images = tmp_path / "images"
    shutil.copytree(data["streamed"], images)
    path = images / "train" / "class_0" / "2.JPEG"
    Image.new("RGB", (20, 20)).save(path, "BMP")  # in which damage shows in decoding alone
    path.write_bytes(path.read_bytes()[:500])
    flags = machine.flags("streamed", tmp_path / "run", images, **{"data.repeats": 1})
    errors = [line for text in fail(machine, [flags, flags]) for line in text.splitlines()]
    assert sum(line.startswith("error: ") and "2.JPEG" in line for line in errors) == 1


def test_a_mistake_in_the_code(machine, data, tmp_path):
    """In one process while the other trains: its traceback."""
    flags = machine.flags("text", tmp_path / "run", data["text"])
    mistaken = "from mimetic_jax.train.arm import ArmData as A; A.placed = lambda *_: 1 / 0"
    config = tmp_path / "with_code.py"
    config.write_text(f"from tests.processes.small import get_config\n{mistaken}\n")
    others = [f"--config={config}:kind=text", *flags[1:]]
    text = fail(machine, [flags, others], code=1)[1]
    assert text.rstrip().endswith("\nZeroDivisionError: division by zero")
