"""Several processes over loopback, with virtual devices and a shared compilation cache."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from mimetic_jax.train.cluster.preemption import EXIT_CODE
from mimetic_jax.train.store.runs import Run
from tests.images import imagenet
from tests.words import penn_treebank

ROOT = pathlib.Path(__file__).parent.parent.parent
CONFIG = pathlib.Path(__file__).parent / "small.py"


class Machine:
    """Starts processes that join over loopback, each with virtual devices."""

    def __init__(self, folder, compiled):
        self.folder = folder
        self.environment = os.environ | {
            "PYTHONUNBUFFERED": "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def flags(self, kind, workdir, data=None, fsdp=2, **fields):
        """Flags of main.py for a small run."""
        flags = [f"--config={CONFIG}:kind={kind},fsdp={fsdp}", f"--workdir={workdir}"]
        flags += [f"--config.data.dir={data}"] if data else []
        return flags + [f"--config.{name}={value}" for name, value in fields.items()]

    def start(self, commands, devices, folders=None):
        """A process per entry of `commands` in its folder; the output of each goes to a log."""
        count = len(commands)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            joining = [f"--coordinator=127.0.0.1:{free.getsockname()[1]}"]
        joining.append(f"--num_processes={count}")
        # XLA ends a process whose devices wait 40 seconds for each other: eight on a busy core do.
        patient = "--xla_cpu_collective_call_terminate_timeout_seconds=300"
        flags = f"--xla_force_host_platform_device_count={devices} {patient}"
        # A collective blocks a thread of XLA's pool until all its devices came, and a device may
        # start two at once. Of jaxlib 0.10 the pool has a thread for each device or core only, so
        # that all may wait for a device that finds no thread: five of six runs stood still.
        threads = str(4 * devices)
        self.logs = [self.folder / f"{number}.log" for number in range(count)]
        running = []
        for number, (command, path) in enumerate(zip(commands, self.logs, strict=True)):
            joined = [*joining, f"--process_id={number}"] if count > 1 else []
            with path.open("w") as log:
                running.append(
                    subprocess.Popen(
                        [sys.executable, ROOT / "main.py", *joined, *command],
                        cwd=folders[number] if folders else ROOT,
                        env=self.environment | {"XLA_FLAGS": flags, "NPROC": threads},
                        stdout=log,
                        stderr=log,
                    )
                )
        return running

    def output(self):
        """The output of the latest start."""
        return "".join(log.read_text() for log in self.logs)

    def wait(self, running):
        """The worst exit code; the failure of one ends the others."""
        codes = [None]
        while None in codes:
            time.sleep(0.05)
            codes = [process.poll() for process in running]
            if failed := [code for code in codes if code not in (None, 0, EXIT_CODE)]:
                for process in running:
                    process.kill()
                    process.wait()
                return failed[0]
        return max(codes)

    def run(self, processes, devices, flags):
        code = self.wait(self.start([flags] * processes, devices))
        assert code == 0, self.output()[-5000:]

    def stop(self, running, metrics, step):
        """Send SIGTERM once a step is recorded; returns the exit code."""
        deadline = time.monotonic() + 200
        while not any(record["step"] >= step for record in metrics.read()):
            assert not any(process.poll() for process in running), self.output()[-5000:]
            assert time.monotonic() < deadline, self.output()[-5000:]
            time.sleep(0.01)
        for process in running:
            process.send_signal(signal.SIGTERM)
        return self.wait(running)

    def together(self, commands, devices, **more):
        """Run a process per entry of `commands`: exit code and output of each."""
        codes = [process.wait() for process in self.start(commands, devices, **more)]
        return list(zip(codes, (log.read_text() for log in self.logs), strict=True))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def machine(tmp_path, compiled):
    return Machine(tmp_path, compiled)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Folders of data: none for digits, words, and JPEGs in two classes."""
    text, images = (tmp_path_factory.mktemp(name) for name in ("text", "images"))
    penn_treebank(text)
    imagenet(images)
    return {"images": None, "normalized": None, "text": text, "streamed": images}


@pytest.fixture
def losses():
    """Reads a workdir: the loss of each step, recorded once, and of each evaluation."""

    def read(workdir):
        records = Run.of(workdir, "run", 0).metrics.read()
        steps = [record["step"] for record in records if "loss" in record]
        assert steps == list(range(1, len(steps) + 1))
        kept = [[r[name] for r in records if name in r] for name in ("loss", "eval_loss")]
        return tuple(map(np.array, kept))

    return read
