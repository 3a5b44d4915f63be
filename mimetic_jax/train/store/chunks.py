"""The trained members of a population, a file per chunk of them, and how many a chunk has."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mimetic_jax.base.errors import InputError, error_text
from mimetic_jax.base.typed import from_json
from mimetic_jax.train.record import SCORES, Origin, Record
from mimetic_jax.train.store.places import Place, damaged

_NAME = re.compile(r"members_(\d+)-(\d+)\.npz", re.ASCII)
_ABOUT = "record"


@dataclasses.dataclass(frozen=True)
class About:
    """The description of a chunk in its file, besides the arrays.

    Attributes:
        count: examples on which each evaluation tests.
        seconds: of the training of all its members.
        origin: where that was.
        data: the fingerprint of the data.
        score: the name of what is compared.
    """

    count: int
    seconds: float
    origin: Origin
    data: str
    score: str


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Members that were trained together.

    Attributes:
        seeds: of the members, [C].
        curve: by name such as "accuracy", what each evaluation gave: (steps [E], values [C, E]).
        initial: weights before the first step by path, each [C, ...].
        final: after the last.
        about: the rest.
    """

    seeds: np.ndarray
    curve: Mapping[str, tuple[np.ndarray, np.ndarray]]
    initial: Mapping[str, np.ndarray]
    final: Mapping[str, np.ndarray]
    about: About


@dataclasses.dataclass(frozen=True)
class Choice:
    """How many members are trained at once, and what made them."""

    size: int
    made: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Members:
    """`WORKDIR/population/ARM`: finished chunks, in order of their members."""

    arm: str
    folder: Place

    @classmethod
    def of(cls, workdir: Place | str, arm: str) -> Members:
        return cls(arm, Place.of(workdir) / "population" / arm)

    @property
    def finished(self) -> list[tuple[int, int]]:
        """First and last member of each finished chunk."""
        matches = map(_NAME.fullmatch, self.folder.names())
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
                    f"{self.folder} has no file of the members {count} to {first - 1}, but of "
                    f"{first} to {last}: move that away"
                )
            count = last + 1
        return count

    @property
    def choice(self) -> Choice | None:
        """The size of chunks, once that is chosen.

        Raises:
            InputError: the file is damaged.
        """
        place = self.folder / "chunk.json"
        if not place.exists():
            return None
        try:
            return from_json(Choice, json.loads(place.read()), str(place))
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, InputError) else "not JSON"
            raise damaged(place, reason) from None

    def choose(self, choice: Choice) -> None:
        """Record the size of chunks."""
        (self.folder / "chunk.json").write(json.dumps(dataclasses.asdict(choice)) + "\n")

    def save(self, chunk: Chunk) -> None:
        """Write the file of a chunk; whoever reads it sees all of it or nothing."""
        arrays: dict[str, np.ndarray] = {"seeds": chunk.seeds}
        for name, (steps, values) in chunk.curve.items():
            arrays |= {f"curve/{name}/steps": steps, f"curve/{name}/values": values}
        for state in ("initial", "final"):
            arrays |= {f"{state}/{path}": x for path, x in getattr(chunk, state).items()}
        about = json.dumps(dataclasses.asdict(chunk.about))
        arrays[_ABOUT] = np.frombuffer(about.encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        self._file(int(chunk.seeds[0]), int(chunk.seeds[-1])).write(buffer.getvalue())

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
            yield _read(self._file(first, last), first, members)

    def records(self, members: int | None = None) -> dict[int, Record]:
        """The records of trained members by seed; those that diverged have none.

        Args:
            members: how many, from member 0 on; all unless given.

        Raises:
            InputError: as `chunks`.
        """
        found = {}
        for chunk in self.chunks(members):
            about, steps = chunk.about, next(iter(chunk.curve.values()))[0].tolist()
            for member in np.flatnonzero(np.isfinite(chunk.curve["loss"][1][:, -1])):
                seed = int(chunk.seeds[member])
                values = [
                    {name: float(of[member][i]) for name, (_, of) in chunk.curve.items()}
                    for i in range(len(steps))
                ]
                found[seed] = Record.of(
                    SCORES[about.score],
                    list(zip(steps, values, strict=True)),
                    about.origin,
                    arm=self.arm,
                    seed=seed,
                    examples=about.count,
                    seconds=about.seconds / len(chunk.seeds),
                    data=about.data,
                )
        return found

    def _file(self, first: int, last: int) -> Place:
        return self.folder / f"members_{first:08}-{last:08}.npz"


def _read(place: Place, first: int, members: int | None) -> Chunk:
    content = place.read()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
        about = from_json(About, json.loads(arrays.pop(_ABOUT).tobytes()), str(place))
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
            about=dataclasses.replace(about, seconds=about.seconds * count / len(seeds)),
        )
    except Exception as error:  # whatever a damaged archive raises
        raise InputError(
            f"{place} is damaged ({error_text(error)}): move it away, and the same command trains "
            "its members again"
        ) from error


def _under(arrays: Mapping[str, np.ndarray], prefix: str, count: int) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array[:count]
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
