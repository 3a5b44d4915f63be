"""Runs tests/multidevice in a process of its own, with eight virtual devices."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.typical import typical


@pytest.mark.timeout(900)
@typical("speed", ["not slow"], slow=["slow"])
def test_eight_devices(speed):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    flags += " --xla_cpu_collective_call_terminate_timeout_seconds=300"
    folder = pathlib.Path(__file__).parent / "multidevice"
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-m", speed]
    done = subprocess.run(
        [*command, str(folder)],
        env=os.environ | {"XLA_FLAGS": flags, "MIMETIC_EIGHT_DEVICES": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
