"""Imports go one way, and importing the library stays cheap."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "mimetic_jax"
ALLOWED = {
    "base": set(),
    "host": {"base"},
    "weights": {"base", "host"},
    "schemes": {"base", "host", "weights"},
    "tree/paths": {"base"},
    "tree/rules": {"base", "tree/layout"},
    "tree/layout": {"base"},
    "tree/tables": {"tree/layout", "tree/rules"},
    "zoo": {"base", "tree/paths", "tree/rules", "tree/tables"},  # data, and which of it fits
    "tree": {
        *("base", "host", "schemes", "tree/layout", "tree/paths", "tree/rules"),
        *("weights", "zoo"),
    },
    "trained": {"base", "host", "schemes", "tree", "tree/paths", "tree/rules", "weights", "zoo"},
    "initializers": {"base", "schemes", "weights"},
    "linen": {"base", "schemes", "tree"},
    "nnx": {"base", "schemes", "tree", "weights"},
    "torch": {"base", "schemes", "tree", "weights"},
    "models": {"base", "tree/rules", "weights"},  # no scheme
    "data": {"base", "host"},
    "train": {
        *("base", "data", "host", "models", "schemes", "tree", "tree/paths", "tree/rules"),
        *("weights", "zoo"),
    },
    "analysis": {
        *("base", "data", "host", "models", "schemes", "train", "trained", "tree", "tree/paths"),
        "weights",
    },
    "command": {
        *("analysis", "base", "data", "host", "models", "schemes", "torch", "train", "trained"),
        *("tree", "tree/rules", "tree/tables", "zoo"),
    },
    "__init__": {
        *("base", "schemes", "trained", "tree", "tree/rules", "tree/tables", "weights", "zoo"),
    },
}
"""By folder, or by module at the root; of `tree` the modules that the tables of the zoo need
stand below it."""


WINGS = {  # inside data
    "augment": {"ranges"},
    "files": {"home", "lines", "ranges"},
    "text": {"download", "home", "lines"},
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
            elif node.module == "mimetic_jax.tree":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module


WITHOUT_FLAX = {"weights", "schemes", "tree/rules", "zoo", "tree", "trained", "tree/paths", "data"}


def part_of(names):
    """The part of the package to which a module belongs, by its names below the package."""
    both = "/".join(names[:2])
    return both if both in ALLOWED else names[0]


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        part = part_of(path.relative_to(PACKAGE).with_suffix("").parts)
        for name in imports(path):
            root, _, rest = name.partition(".")
            assert root != "main"
            if root == "mimetic_jax" and rest:
                target = part_of(rest.split("."))
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
