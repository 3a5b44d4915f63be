"""A run whose workdir is in a bucket. Needs gcsfs, as gs:// does."""

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = """
from configs.default import default


def get_config():
    config = default()
    config.name = "tiny"
    config.batch, config.steps, config.max_dispatch = 32, STEPS, 2
    config.model.update(width=16, depth=1, heads=2)
    config.data.augment.crop = 1
    config.eval.batch, config.eval.every = 360, 20
    config.log_every, config.checkpoint_every = 4, 4
    return config
"""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(importlib.util.find_spec("gcsfs") is None, reason="needs gcsfs"),
]
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


@pytest.fixture
def bucket():
    """Serve a bucket; the environment that makes clients use it."""
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "bucket_server.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    address = server.stdout.readline().strip()
    try:
        yield os.environ | {
            "STORAGE_EMULATOR_HOST": address,
            "TENSORSTORE_GCS_HTTP_URL": address,
            "GCE_METADATA_ROOT": "metadata.invalid",  # no search for credentials
            "PYTHONUNBUFFERED": "1",
        }
    finally:
        server.kill()
        server.communicate()


def finished(environment, *command):
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, **PIPES)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def final_test(said):
    (line,) = [line for line in said.splitlines() if re.search(r"step +(\d+)/\1  test", line)]
    return line.split("test", 1)[1]


def test_killed_and_continued_in_a_bucket(tmp_path, bucket):
    config = tmp_path / "tiny.py"
    config.write_text(CONFIG.replace("STEPS", "200"))

    def command(workdir, *flags):
        return "main.py", f"--config={config}", f"--workdir={workdir}", *flags

    first = [sys.executable, *command("gs://bucket/runs/killed")]
    killed = subprocess.Popen(first, cwd=ROOT, env=bucket, **PIPES)
    for line in killed.stdout:
        if "step     60/200" in line:
            killed.send_signal(signal.SIGKILL)
            break
    killed.communicate()
    again = finished(bucket, *command("gs://bucket/runs/killed"))
    assert "continues at step" in again
    whole = finished(bucket, *command(tmp_path / "whole"))
    # The same numbers as on a local disk, each step once.
    assert final_test(again) == final_test(whole)
    tested = finished(bucket, *command("gs://bucket/runs/killed", "--mode=eval"))
    assert final_test(whole) in tested
