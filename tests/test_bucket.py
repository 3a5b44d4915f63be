"""A run whose workdir is a bucket: killed, resumed, evaluated. Needs gcsfs, as gs:// does."""

import importlib.util
import os
import pathlib
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


@pytest.fixture
def bucket():
    """Serve a bucket; yields the environment that makes clients use it."""
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "bucket_server.py")],
        stdout=subprocess.PIPE,
        text=True,
    )
    address = server.stdout.readline().strip()
    yield os.environ | {
        "STORAGE_EMULATOR_HOST": address,
        "TENSORSTORE_GCS_HTTP_URL": address,
        "GCE_METADATA_ROOT": "metadata.invalid",  # no search for credentials
        "PYTHONUNBUFFERED": "1",
    }
    server.kill()
    server.communicate()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("gcsfs") is None, reason="needs gcsfs")
def test_killed_and_continued_in_a_bucket(tmp_path, bucket):
    config = tmp_path / "tiny.py"
    config.write_text(CONFIG.replace("STEPS", "200"))

    def start(workdir, *flags):
        command = [sys.executable, "main.py", f"--config={config}", f"--workdir={workdir}", *flags]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=bucket, **pipes)

    def finish(workdir, *flags):
        process = start(workdir, *flags)
        said, _ = process.communicate()
        assert process.returncode == 0, said[-3000:]
        return said

    killed = start("gs://bucket/runs/killed")
    for line in killed.stdout:
        if "step     60/200" in line:
            killed.send_signal(signal.SIGKILL)
            break
    killed.communicate()
    again = finish("gs://bucket/runs/killed")
    assert "waiting 60 s for its renewal" in again  # the lease of the killed process
    assert "continues at step" in again
    whole = finish(tmp_path / "whole")
    final = [line for line in whole.splitlines() if "step    200/200  test" in line]
    assert len(final) == 1
    assert final[0] in again
    # The same numbers as on a local disk, each step once.
    tested = finish("gs://bucket/runs/killed", "--mode=eval")
    assert final[0].split("test", 1)[1] in tested
