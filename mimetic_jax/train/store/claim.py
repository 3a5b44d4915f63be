"""What a workdir and a checkpoint belong to, so that nothing else continues them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import from_json
from mimetic_jax.train.config import ALONE, check_continues
from mimetic_jax.train.record import Trained
from mimetic_jax.train.store import files
from mimetic_jax.train.store.files import AnyPath


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance(Trained):
    """Where a checkpoint comes from: the version of the code, and the arm's configuration."""

    code: str
    config: Mapping[str, Any]

    def check(self, recorded: Any, where: str, say: Callable[[str], None]) -> None:
        """Check that this continues what a file says of itself; report another version of code."""
        other = from_json(Provenance, recorded, where)
        if (other.arm, other.seed) != (self.arm, self.seed):
            raise InputError(
                f"{where} is of arm {other.arm} seed {other.seed}, not of {self.arm} seed "
                f"{self.seed}: move it back"
            )
        check_continues(where, other.config, self.config)
        check_fingerprint(where, "data", other.data, self.data)
        check_fingerprint(where, "init_from", other.source, self.source)
        if other.code != self.code:
            say(f"its checkpoint is of version {other.code}, this is {self.code}")


def check_fingerprint(where: str, what: str, there: str | None, here: str | None) -> None:
    """Check that data, or the weights that runs start from, are those of before."""
    if there != here:
        raise InputError(
            f"{where} was trained with other {what} (fingerprint {there} there, {here} here): use "
            "that of before, or another --workdir"
        )


@dataclasses.dataclass(frozen=True)
class Claim:
    """The config.json of a workdir: its configuration and the content of what it names.

    Attributes:
        data: the fingerprint of the data by arm.
        sources: the digest of the weights by path that an `init_from` names.
    """

    config: Mapping[str, Any]
    data: Mapping[str, str]
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, workdir: AnyPath) -> Claim | None:
        """Return the claim of a workdir; None if it has none."""
        path = workdir / "config.json"
        if not path.exists():
            return None
        try:
            data = json.loads(files.read(path))
        except (ValueError, RecursionError):
            raise files.damaged(path, "not JSON") from None
        claim = from_json(cls, data, str(path))
        if not isinstance(claim.config.get("arms"), dict) or "task" not in claim.config:
            raise files.damaged(path, "no configuration")
        return claim

    @classmethod
    def of(cls, workdir: AnyPath) -> Claim:
        """Return the claim of a workdir that must have one."""
        if (claim := cls.read(workdir)) is None:
            raise InputError(f"nothing was trained in {workdir}: it has no config.json")
        return claim

    def joined(self, other: Claim, workdir: AnyPath) -> Claim:
        """This claim with the seeds, arms and fingerprints of another one of the same workdir."""
        check_continues(f"workdir {workdir}", other.config, self.config)
        for arm in sorted(self.data.keys() & other.data.keys()):
            where = f"arm {arm} of workdir {workdir}"
            check_fingerprint(where, "data", other.data[arm], self.data[arm])
        for path in self.sources.keys() & other.sources.keys():
            check_fingerprint(f"workdir {workdir}", path, other.sources[path], self.sources[path])
        seeds = sorted({*other.config.get("seeds", ()), *self.config["seeds"]})
        arms = {**other.config["arms"], **self.config["arms"]}
        if arms and not (other.config["arms"] and self.config["arms"]):
            arms = {ALONE: {}, **arms}  # without arms, one of them trained that of this name
        return Claim(
            {**self.config, "seeds": seeds, "arms": arms},
            {**other.data, **self.data},
            {**other.sources, **self.sources},
        )

    def write(self, workdir: AnyPath) -> None:
        """Write the file, unless it says the same."""
        try:
            text = json.dumps(dataclasses.asdict(self), indent=2) + "\n"
            path = workdir / "config.json"
            if not path.exists() or files.read(path) != text.encode():
                files.write(path, text)
        except OSError as error:
            raise InputError(
                f"workdir {workdir} can't be written: {error.strerror or error}"
            ) from error
