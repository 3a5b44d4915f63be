"""A checkpoint restores bit for bit on another number of processes and devices."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

DUMP = pathlib.Path(__file__).with_name("dump.py")


def assembled(folder):
    """The arrays whose parts the processes wrote, each part once."""
    arrays, filled = {}, {}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as parts:
            for key, part in parts.items():
                name, shape, _, *corner = key.split(" ")
                shape = tuple(map(int, filter(None, shape.split("_"))))
                array = arrays.setdefault(name, np.zeros(shape, part.dtype))
                count = filled.setdefault(name, np.zeros(shape, int))
                start = map(int, filter(None, corner[0].split("_") if corner else ()))
                where = tuple(slice(a, a + n) for a, n in zip(start, part.shape, strict=True))
                array[where] = part
                count[where] += 1
    assert all((count == 1).all() for count in filled.values())
    return arrays


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_checkpoint_restores_elsewhere_bit_for_bit(machine, data, tmp_path):
    config = machine.flags("text", "")[0].removeprefix("--config=").removesuffix(":2")

    def run(processes, devices, what):
        folder = tmp_path / f"{what}_{processes}x{devices}"
        arguments = [config, str(tmp_path / "run"), str(folder), what, str(data["text"])]
        ended = machine.together([arguments] * processes, devices, str(DUMP))
        assert [code for code, _ in ended] == [0] * processes, ended
        assert len(list(folder.glob("*.npz"))) == processes
        return assembled(folder)

    written = run(2, 4, "save")
    assert len(written) > 40
    assert any("nu" in name and np.any(array) for name, array in written.items())
    for processes, devices in ((1, 8), (2, 2)):
        read = run(processes, devices, "restore")
        assert read.keys() == written.keys()
        for name, array in read.items():
            assert array.dtype == written[name].dtype
            assert array.tobytes() == written[name].tobytes(), name
