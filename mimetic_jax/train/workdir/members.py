"""The folder of a population: what its trained members are and scored, a file for each chunk."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mimetic_jax.errors import InputError, said_by
from mimetic_jax.train.workdir.checkpoint import trained_on_other_data
from mimetic_jax.train.workdir.documents import read_document
from mimetic_jax.train.workdir.paths import AnyPath, write_atomically, write_bytes_atomically

_NAME = re.compile(r"members_(\d+)-(\d+)\.npz")
_RECORD, _CHOICE = "record", "chunk.json"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Members that were trained together.

    Attributes:
        seeds: of the members, [C].
        curve: by name such as "accuracy", what each evaluation gave: (steps [E], values [C, E]).
        initial: weights before the first step by path, each [C, ...].
        final: after the last.
        count: examples that each evaluation tested on.
        seconds: of their training.
        origin: devices, versions and commit.
    """

    seeds: np.ndarray
    curve: Mapping[str, tuple[np.ndarray, np.ndarray]]
    initial: Mapping[str, np.ndarray]
    final: Mapping[str, np.ndarray]
    count: int
    seconds: float
    origin: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class MembersFolder:
    """`WORKDIR/population/ARM`: finished chunks, in order of their members."""

    directory: AnyPath

    @classmethod
    def of(cls, workdir: AnyPath, arm: str) -> MembersFolder:
        return cls(workdir / "population" / arm)

    @property
    def finished(self) -> list[tuple[int, int]]:
        """First and last member of each finished chunk."""
        if not self.directory.exists():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    @property
    def trained(self) -> int:
        """How many members, from 0 on, are trained.

        Raises:
            InputError: if files are missing in between.
        """
        count = 0
        for first, last in self.finished:
            if first != count:
                raise InputError(
                    f"{self.directory} has no file of the members {count} to {first - 1}, but of "
                    f"{first} to {last}: move that away"
                )
            count = last + 1
        return count

    @property
    def chunk_size(self) -> int | None:
        """How many members were trained at once, once that is chosen."""
        return int(self._choice()["size"]) if self._choice() else None

    @property
    def config(self) -> dict[str, Any] | None:
        """The configuration of the members, once the size of chunks is chosen."""
        return self._choice().get("config")

    def choose(self, size: int, fingerprint: str, config: Mapping[str, Any]) -> None:
        """Write down how many members are trained at once, on which data, of which config."""
        text = json.dumps({"size": size, "data": fingerprint, "config": config})
        write_atomically(self.directory / _CHOICE, text + "\n")

    def check_data(self, fingerprint: str) -> None:
        """Check that members are trained on this data, once the size of chunks is chosen.

        Raises:
            InputError: they are trained on other data.
        """
        if (found := self._choice()["data"]) != fingerprint:
            raise trained_on_other_data(self.directory, found, fingerprint)

    def _choice(self) -> dict[str, Any]:
        path = self.directory / _CHOICE
        if not path.exists():
            return {}
        return read_document(path, {"size": int, "data": str})

    def save(self, chunk: Chunk) -> None:
        """Write the file of a chunk; whoever reads it sees all of it or nothing."""
        arrays: dict[str, np.ndarray] = {"seeds": chunk.seeds}
        for name, (steps, values) in chunk.curve.items():
            arrays |= {f"curve/{name}/steps": steps, f"curve/{name}/values": values}
        for state in ("initial", "final"):
            arrays |= {f"{state}/{path}": x for path, x in getattr(chunk, state).items()}
        record = {"count": chunk.count, "seconds": chunk.seconds, "origin": dict(chunk.origin)}
        arrays[_RECORD] = np.frombuffer(json.dumps(record).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        name = f"members_{chunk.seeds[0]:08}-{chunk.seeds[-1]:08}.npz"
        write_bytes_atomically(self.directory / name, buffer.getvalue())

    def chunks(self, members: int | None = None) -> Iterator[Chunk]:
        """The finished chunks, one in memory at a time.

        Args:
            members: how many, from member 0 on; all unless given.

        Raises:
            InputError: for a damaged file, which stays as it is.
        """
        for first, last in self.finished:
            if members is not None and first >= members:
                return
            yield _read(self.directory / f"members_{first:08}-{last:08}.npz", first, members)


def _read(path: AnyPath, first: int, members: int | None) -> Chunk:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = dict(file)
        record = json.loads(arrays.pop(_RECORD).tobytes())
        seeds = arrays.pop("seeds")
        names = {name.split("/")[1] for name in arrays if name.startswith("curve/")}
        count = len(seeds) if members is None else min(len(seeds), members - first)
        return Chunk(
            seeds=seeds[:count],
            curve={
                name: (arrays[f"curve/{name}/steps"], arrays[f"curve/{name}/values"][:count])
                for name in sorted(names)
            },
            initial=_under(arrays, "initial/", count),
            final=_under(arrays, "final/", count),
            count=record["count"],
            seconds=record["seconds"] * count / len(seeds),
            origin=record["origin"],
        )
    except Exception as error:  # whatever a damaged archive raises
        raise InputError(
            f"{path} is damaged ({said_by(error)}): move it away, and the same "
            "command trains its members again"
        ) from error


def _under(arrays: Mapping[str, np.ndarray], prefix: str, count: int) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array[:count]
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
