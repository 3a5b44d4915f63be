"""A run whose workdir, or whose data, is in a bucket. Needs gcsfs, as gs:// does."""

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

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
COMMAND = "from mimetic_jax.command.console import main; main()"
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


@contextlib.contextmanager
def serving(*arguments):
    """Serve a bucket; the environment that makes clients use it."""
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "bucket_server.py"), *map(str, arguments)],
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


@pytest.fixture
def bucket():
    with serving() as environment:
        yield environment


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


def images(path):
    """A tar of photographs' size, so that no two are in one request."""
    random = np.random.default_rng(0)
    with tarfile.open(path, "w") as tar:
        for split, count in (("train", 16), ("test", 4)):
            for number in range(2 * count):
                pixels = random.integers(0, 256, (60, 80, 3), np.uint8)
                encoded = io.BytesIO()
                Image.fromarray(pixels).save(encoded, "JPEG", quality=95)
                info = tarfile.TarInfo(f"{split}/class_{number % 2}/{number}.jpeg")
                info.size = len(encoded.getvalue())
                tar.addfile(info, io.BytesIO(encoded.getvalue()))
    return path


def test_images_in_a_bucket_train_as_on_a_disk(tmp_path):
    """Although each request takes 50 ms, and some fail or end in the middle."""
    tar, config = images(tmp_path / "images.tar"), tmp_path / "tiny.py"
    more = "\n    config.data.name, config.data.size = 'folder_streamed', 32\n    return config"
    config.write_text(CONFIG.replace("STEPS", "20").replace("\n    return config", more))

    def command(data, workdir):
        where = f"--config.data.dir={data}", f"--workdir={tmp_path / workdir}"
        return "main.py", f"--config={config}", *where

    with serving("--latency=0.05", "--fail=50", "--cut=30", tar) as there:
        here = finished(there, *command(tar, "here"))
        for workdir in ("headers", "index"):
            said = finished(there, *command("gs://bucket/images.tar", workdir))
            assert final_test(said) == final_test(here)
            index = finished(there, "-c", COMMAND, "index", "gs://bucket/images.tar")
            assert "gs://bucket/images.tar.index: 40 files and folders" in index
