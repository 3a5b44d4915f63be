"""An array of runs on Slurm itself: one is stopped, comes back, and the table has all."""

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.launch.slurm_cluster import cluster, installed

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not installed(), reason="no Slurm here: slurm-wlm and munge, as root"),
]


def until(done: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def test_a_stopped_job_of_an_array_comes_back_and_finishes(tmp_path: pathlib.Path) -> None:
    call = [sys.executable, "launch/reproduce.py", "configs/digits_vit.py"]
    call += [f"--row=width={width},depth=1,heads=2,steps=1000" for width in (16, 32)]
    call += [f"--workdir={tmp_path}/runs", "--arms=default", "--seeds=0"]
    with cluster(tmp_path) as environment:
        environment["PYTHON"] = sys.executable

        def run(*command: str) -> str:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        options = ["--array=0-1", f"--output={tmp_path}/%a.log"]
        said = run("sbatch", *options, "launch/slurm.sbatch", *call[1:])
        number = said.split()[-1]
        first = tmp_path / "runs"
        until(lambda: list(first.glob("*width=16*/runs/default/0/metrics.jsonl")), 240, said)
        run("scancel", "--signal=TERM", "--batch", f"{number}_0")
        log = tmp_path / "0.log"
        until(lambda: "requeued" in log.read_text(), 120, log.read_text())
        until(lambda: not run("squeue", "--noheader"), 300, run("squeue"))
    assert "exit code 75: requeued" in log.read_text()
    assert "continues at step" in log.read_text()
    done = subprocess.run([*call, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(1)") == 2  # both rows have a run, and nothing else is said
    assert "seed 0" not in done.stdout
