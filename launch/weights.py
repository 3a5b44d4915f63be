"""What a row takes beside data: a file that runs start from, or the workdir of a first stage."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib

from launch.digest import digest_of
from mimetic_jax.data.home import expanded
from mimetic_jax.errors import InputError

PLACEHOLDERS = ("FILE.npz", "FILE.json", "FIRST_STAGE")
"""In a row's arguments: weights, a population's statistics, and a workdir of main.py."""

_FILES = {".npz": "FILE.npz", ".safetensors": "FILE.npz", ".json": "FILE.json"}


@dataclasses.dataclass(frozen=True)
class Weights:
    """What runs start from: weights or their statistics; copies of a file are the same.

    Attributes:
        placeholder: which of `PLACEHOLDERS` they replace.
        mark: 12 hexadecimal digits that differ where the weights do.
        path: where they are.
    """

    placeholder: str
    mark: str
    path: str = dataclasses.field(compare=False)

    @classmethod
    def read(cls, path: str) -> Weights:
        """The weights of a file, or of a workdir whose runs are finished.

        A file's mark is that of its bytes. A workdir's is that of its configuration, on which its
        weights depend: more seeds leave it.

        Raises:
            InputError: if there is no such file, or it can't serve.
        """
        given = expanded(path).resolve()
        if "," in str(given):
            raise InputError(f"--file={path}: a config's argument can't hold the comma of {given}")
        if given.is_dir():
            return cls(PLACEHOLDERS[-1], _mark_of_workdir(given), str(given))
        if not given.is_file():
            raise InputError(f"--file={path}: there is no such file")
        if given.suffix not in _FILES:
            raise InputError(f"--file={path} is none of {', '.join(_FILES)}")
        with given.open("rb") as file:
            mark = hashlib.file_digest(file, "sha256").hexdigest()[:12]
        return cls(_FILES[given.suffix], mark, str(given))


def _mark_of_workdir(workdir: pathlib.Path) -> str:
    from mimetic_jax.train.workdir.documents import read_config
    from mimetic_jax.train.workdir.runs import Run

    if not (workdir / "config.json").is_file():
        raise InputError(f"--file={workdir} is no workdir of main.py: it has no config.json")
    folders = [file.parent for file in sorted(workdir.glob("runs/*/*/metrics.jsonl"))]
    # Beside the seeds may lie what the user moved away.
    seeds = [folder for folder in folders if folder.name.isdecimal()]
    runs = [Run.of(workdir, folder.parent.name, int(folder.name)) for folder in seeds]
    if not runs:
        raise InputError(f"--file={workdir} has no run: train the first stage")
    for run in runs:
        if not run.finished():
            raise InputError(f"--file={workdir}: {run.arm} seed {run.seed} isn't finished")
    return digest_of(read_config(workdir / "config.json"))
