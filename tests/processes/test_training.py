"""Several processes train as one: on images in memory, on text, on images streamed from disk."""

import json
import shutil

import numpy as np
import pytest

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
        return machine.flags(kind, workdir, data[kind], steps=100, checkpoint_every=50)

    machine.run(1, 8, flags(tmp_path / "whole"))
    expected, tested = losses(tmp_path / "whole")
    run = Run.of(tmp_path / "stopped", "run", 0)
    code = machine.stop(machine.start(2, 4, flags(tmp_path / "stopped")), run.metrics, 5)
    assert code == 75, machine.output()[-5000:]
    assert "which is saved: the same command continues" in machine.output()
    stopped = len(losses(tmp_path / "stopped")[0])
    assert 5 <= stopped < 100
    for processes, devices in ((1, 8), (2, 2)):
        workdir = tmp_path / f"{processes}x{devices}"
        shutil.copytree(tmp_path / "stopped", workdir)
        machine.run(processes, devices, flags(workdir))
        assert f"continues at step {stopped}\n" in machine.output()
        found, found_tested = losses(workdir)
        assert len(found) == 100
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_allclose(found_tested, tested, rtol=1e-5)
        before = (tmp_path / "stopped" / "runs/run/0/metrics.jsonl").read_text().splitlines()
        after = (workdir / "runs/run/0/metrics.jsonl").read_text().splitlines()
        assert list(map(json.loads, after[: len(before)])) == list(map(json.loads, before))
