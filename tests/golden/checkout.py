"""Files of other people's repositories, whose clones lie in the folder MIMETIC_ORIGINALS."""

import importlib.util
import os
import pathlib
from typing import Any


def module(path: str) -> Any:
    """A file of a clone, imported by itself."""
    file = pathlib.Path(os.environ["MIMETIC_ORIGINALS"], path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
