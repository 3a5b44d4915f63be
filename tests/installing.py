"""Installing the package as a user does, into an environment of its own."""

import pathlib
import shutil
import subprocess
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
