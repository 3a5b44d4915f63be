"""Processes of their own: the package installed as a user does, and programs run twice."""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def installed(folder: pathlib.Path, *options: str) -> pathlib.Path:
    """The folder of programs of a new environment that has this package.

    Args:
        folder: an empty one.
        options: options for pip.
    """
    source = folder / "source"  # a copy, since building writes beside what it builds
    for name in ("mimetic_jax", "configs"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    pip = [programs / "python", "-m", "pip", "install", "-q"]
    if subprocess.run([*pip, "setuptools>=77"]).returncode:
        pytest.skip("needs a package index")
    subprocess.run([*pip, "--no-build-isolation", *options, source], check=True)
    shutil.rmtree(source)
    return programs


def printed_twice(
    program: str, variable: str = "PYTHONHASHSEED", values: tuple[str, str] = ("1", "2")
) -> list[str]:
    """What two processes print that differ in a variable: have sets in different orders."""
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, variable: value, "JAX_PLATFORMS": "cpu"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for value in values
    ]
