"""Damage of files as Hypothesis draws it, and a bound on what reading them allocates."""

import contextlib
import tracemalloc
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

Change = tuple[float, str, int]

changes = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from("rid"), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)
"""Where, as a share of the file; whether to replace, insert or delete; and which byte."""


def damaged(content: bytes, edits: Sequence[Change]) -> bytes:
    """The content after these changes."""
    found = bytearray(content)
    for where, how, byte in edits:
        at = int(where * len(found))
        found[at : at + (how != "i")] = b"" if how == "d" else bytes([byte])
    return bytes(found)


@contextlib.contextmanager
def peak_bytes(most: int) -> Iterator[None]:
    """Check that the block allocates at most so many bytes at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= most
    finally:
        tracemalloc.stop()
