"""The version, importable without JAX."""

from __future__ import annotations

import functools
import hashlib
import pathlib

__version__ = "0.3.0"


@functools.cache
def source_version() -> str:
    """Return the version plus eight hexadecimal digits that change with any line of the package.

    >>> source_version().startswith(__version__ + "+")
    True
    """
    digest, root = hashlib.sha256(), pathlib.Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:8]}"
