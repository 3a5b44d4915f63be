"""Imports go one way, and importing the library stays cheap."""

import ast
import pathlib

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
        "zoo",
    },
    "analysis": {
        "errors",
        "exits",
        "check",
        "extras",
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
        *("errors", "exits", "extras", "version", "data", "host", "train", "analysis", "typed"),
        *("check", "fit", "models", "rewrite", "rules", "schemes", "table", "torch", "zoo"),
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
    "files": {"home", "ranges"},
    "text": {"download", "home"},
    "sets": {"download", "files", "home"},
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


WITHOUT_FLAX = {"weights", "schemes", "rules", "zoo", "rewrite", "fit", "paths", "data"}


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imports(path):
            root, _, rest = name.partition(".")
            assert root != "main"
            if root == "mimetic_jax" and rest:
                target = rest.split(".")[0]
                assert target in ALLOWED[part] | {part}, f"{path} imports {name}"
            if root == "orbax":
                assert path == PACKAGE / "train" / "store" / "checkpoint.py"
            assert root != "flax" or part not in WITHOUT_FLAX, path


def test_the_wings_of_data_point_one_way():
    for path in (PACKAGE / "data").glob("*/*.py"):
        wing = path.parent.name
        for name in imports(path):
            target = name.removeprefix("mimetic_jax.data.").split(".")[0]
            if name.startswith("mimetic_jax.data."):
                assert target in WINGS[wing] | {wing}, f"{path} imports {name}"
