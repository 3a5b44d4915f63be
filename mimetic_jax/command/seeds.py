"""Seeds on a command line."""

from __future__ import annotations

import re

from mimetic_jax.base.errors import InputError


def parse_seeds(flag: str, text: str) -> tuple[int, ...]:
    """The seeds that a flag gives.

    They are numbers and ranges with commas between, or a `range` or a tuple as Python writes them.
    """
    if found := re.fullmatch(r"range\((?:(\d{1,10}), *)?(\d{1,10})\)", text):
        parts = [range(int(found[1] or 0), int(found[2]))]
    else:
        parts = [_of_part(part) for part in text.strip("()[] ").removesuffix(",").split(",")]
    if not all(parts) or max(map(max, parts)) >= 2**32:
        raise InputError(
            f"{flag}={text[:200]}: give 0-7, range(8) or 0,1,2, all below 2^32; 8 is seed 8 alone"
        )
    seeds = [seed for part in parts for seed in part]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"{flag}={text[:200]} names a seed twice")
    return tuple(seeds)


def _of_part(text: str) -> range:
    """The seeds of a number or a range such as 0-7; none of anything else."""
    found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", text.strip())
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
