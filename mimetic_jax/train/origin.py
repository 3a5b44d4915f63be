"""Where a result comes from: devices, versions, commit."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import subprocess

import jax

from mimetic_jax.version import source_version

ROOT = pathlib.Path(__file__).resolve().parents[2]
_CODE = ("mimetic_jax", "configs", "launch", "benchmarks", "papers", "main.py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a result was computed.

    Attributes:
        platform, device_kind, devices: of JAX; the number of devices of all processes.
        jax: its version.
        code: the version of this package.
        commit: of this code, with "-dirty" if it differs; None without git.
    """

    platform: str = ""
    device_kind: str = ""
    devices: int = 0
    jax: str = ""
    code: str = ""
    commit: str | None = None

    @classmethod
    def here(cls) -> Origin:
        """This process and those that compute with it; asking takes the devices."""
        return Origin(
            platform=jax.default_backend(),
            device_kind=jax.devices()[0].device_kind,
            devices=jax.device_count(),
            jax=jax.__version__,
            code=source_version(),
            commit=commit(),
        )


@functools.cache
def commit() -> str | None:
    """The commit of this code, with "-dirty" if the code differs; None without git."""
    found = _git("rev-parse", "HEAD")
    changed = found and _git("status", "--porcelain", "--", *_CODE)
    return f"{found}-dirty" if changed else found


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():  # installed: a repository above it is another project's
        return None
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
