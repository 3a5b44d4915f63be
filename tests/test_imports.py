"""Imports go one way, and importing the library stays cheap."""

from __future__ import annotations

import ast
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "mimetic_jax"
ALLOWED = {
    "errors": set(),
    "version": set(),
    "extras": {"errors"},
    "paths": {"errors"},
    "table": set(),
    "typed": {"errors"},
    "host": set(),
    "weights": {"errors", "host", "typed"},
    "schemes": {"errors", "host", "typed", "weights"},
    "rules": {"errors", "typed"},
    "zoo": {"errors", "paths", "rules"},  # data, and which of it fits
    "tree": {"errors", "paths", "rules", "schemes", "typed", "weights", "zoo"},
    "placement": {"errors", "weights"},
    "rewrite": {
        "errors",
        "host",
        "paths",
        "placement",
        "rules",
        "schemes",
        "table",
        "tree",
        "weights",
        "zoo",
    },
    "pairs": {"errors", "rewrite", "rules", "schemes"},
    "check": {"errors", "extras", "pairs", "rewrite", "rules", "schemes", "table"},
    "fit": {"errors", "host", "pairs", "paths", "rules", "schemes", "table", "weights"},
    "initializers": {"errors", "schemes", "typed", "weights"},
    "linen": {"errors", "rewrite", "schemes"},
    "nnx": {"errors", "rewrite", "schemes", "typed", "weights"},
    "torch": {"errors", "rewrite", "schemes", "weights"},
    "models": {"errors", "rules", "typed", "weights"},  # no scheme
    "data": {"errors", "exits", "extras", "host", "typed"},
    "train": {
        "errors",
        "host",
        "typed",
        "extras",
        "version",
        "paths",
        "rules",
        "schemes",
        "rewrite",
        "models",
        "data",
        "weights",
    },
    "analysis": {
        "errors",
        "exits",
        "extras",
        "fit",
        "host",
        "pairs",
        "paths",
        "schemes",
        "rewrite",
        "table",
        "models",
        "weights",
        "data",
        "train",
    },
    "command": {
        *("errors", "exits", "extras", "version", "data", "host", "train", "analysis"),
        *("check", "fit", "models", "rewrite", "schemes", "torch"),
    },
    "exits": {"errors"},
    "__init__": {
        "errors",
        "version",
        "schemes",
        "weights",
        "rules",
        "zoo",
        "rewrite",
        "fit",
        "check",
    },
}


WINGS = {  # inside data
    "augment": {"ranges"},
    "files": {"home", "ranges", "remote"},
    "text": {"home", "remote"},
    "sets": {"files", "home", "remote"},
    "feed": {"files", "sets", "text"},
    "recall": set(),
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "mimetic_jax":
                yield from (f"mimetic_jax.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_imports_point_one_way(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in imports(path):
        root, _, rest = name.partition(".")
        assert root != "main"
        if root == "mimetic_jax" and rest:
            target = rest.split(".")[0]
            assert target in ALLOWED[part] | {part}, f"{path} imports {name}"
        if root == "orbax":
            assert path == PACKAGE / "train" / "store" / "checkpoint.py"
        if root == "flax":
            assert part not in (
                "weights",
                "schemes",
                "rules",
                "zoo",
                "rewrite",
                "fit",
                "paths",
                "data",
            )


@pytest.mark.parametrize("wing", WINGS)
def test_the_wings_of_data_point_one_way(wing):
    for path in (PACKAGE / "data" / wing).glob("*.py"):
        for name in imports(path):
            target = name.removeprefix("mimetic_jax.data.").split(".")[0]
            if name.startswith("mimetic_jax.data."):
                assert target in WINGS[wing] | {wing}, f"{path} imports {name}"


HEAVY = [
    "tensorflow",
    "tensorflow_datasets",
    "grain",
    "orbax",
    "cv2",
    "matplotlib",
    "sklearn",
    "PIL",
]
USE = """
import json, sys
import jax, jax.numpy as jnp, flax.linen as nn
import mimetic_jax, mimetic_jax.linen
layer = nn.MultiHeadDotProductAttention(num_heads=2)
params = layer.init(jax.random.key(0), jnp.ones((1, 4, 16)))["params"]
mimetic_jax.rewrite(jax.random.key(1), params, mimetic_jax.schemes.Mimetic())
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def test_rewrite_loads_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & set(HEAVY)
