"""What a row needs besides data: a file that runs start from, or the workdir of a first stage."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib

from mimetic_jax.base.errors import InputError
from mimetic_jax.data.home import expanded

PLACEHOLDERS = ("FILE.npz", "FIRST_STAGE")
"""In a row's arguments: weights, a population's statistics, and a workdir of main.py."""

_FILES = {".npz": "FILE.npz", ".safetensors": "FILE.npz"}


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
        """The weights of a file, or of a workdir.

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


def _mark_of_workdir(path: pathlib.Path) -> str:
    # The training code takes seconds to import, which commands without weights don't need.
    from mimetic_jax.train.schema import digest
    from mimetic_jax.train.store.claim import Claim
    from mimetic_jax.train.store.places import Place

    if (claim := Claim.read(Place(path))) is None:
        raise InputError(f"--file={path} is not a workdir of main.py: it has no config.json")
    return digest(claim.config)
