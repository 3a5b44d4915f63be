"""What crops on the host and on the device share: the order of a range's ends."""

from __future__ import annotations

from mimetic_jax.base.errors import InputError


def check_range(name: str, ends: tuple[float, ...]) -> None:
    """Check that this is the least and the greatest of some numbers."""
    if len(ends) != 2 or ends[0] > ends[1]:
        raise InputError(f"{name} {tuple(ends)} isn't (least, greatest)")
