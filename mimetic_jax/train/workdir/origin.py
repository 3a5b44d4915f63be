"""Where a result comes from: devices, versions, commit."""

from __future__ import annotations

import functools
import pathlib
import subprocess
from typing import Any

import jax

from mimetic_jax.version import source_version

ROOT = pathlib.Path(__file__).resolve().parents[3]
_CODE = ("mimetic_jax", "configs", "launch", "benchmarks", "papers", "main.py")


def origin() -> dict[str, Any]:
    """The devices of all processes, the version of JAX, and the code; asking takes the devices."""
    return {
        "platform": jax.default_backend(),
        "device_kind": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "jax": jax.__version__,
        "code": source_version(),
        "commit": commit(),
    }


@functools.cache
def commit() -> str | None:
    """The commit of this code, with "-dirty" if the code differs; None where there is no git."""
    found = _git("rev-parse", "HEAD")
    changed = found and _git("status", "--porcelain", "--", *_CODE)
    return f"{found}-dirty" if changed else found


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():  # installed: a repository above it is somebody else's
        return None
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
