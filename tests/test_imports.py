"""Imports go one way, and importing the library stays cheap."""

import ast
import graphlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "mimetic_jax"
BELOW = {"base", "host", "rules", "schemes", "tree", "weights"}
ALLOWED = {
    "base": set(),
    "host": {"base"},
    "weights": {"base", "host"},
    "rules": {"base"},
    "zoo": {"base", "rules", "weights"},
    "schemes": {"base", "host", "weights", "zoo"},
    "tree": {"base", "host", "rules", "schemes", "weights", "zoo"},
    "trained": BELOW | {"zoo"},
    "initializers": {"base", "schemes", "tree", "weights"},
    "linen": {"base", "schemes", "tree"},
    "nnx": {"base", "schemes", "tree", "weights"},
    "torch": {"base", "rules", "schemes", "tree", "weights", "zoo"},
    "models": {"base", "rules", "weights"},  # no scheme
    "data": {"base", "host", "weights"},
    "train": BELOW | {"data", "models", "zoo"},
    "analysis": BELOW | {"data", "models", "train", "trained"},
    "command": BELOW | {"analysis", "data", "models", "torch", "train", "trained", "zoo"},
    "__init__": {"base", "rules", "schemes", "trained", "tree", "weights", "zoo"},
    "__main__": {"command"},
}
"""By folder, or by module at the root; each imports what stands above it."""


WINGS = {  # inside data
    "augment": set(),
    "files": {"paths", "textfiles"},
    "text": {"cache", "download", "paths", "textfiles"},
    "sets": {"download", "files", "paths"},
    "feed": {"files", "sets", "text"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        yield from imported(node)


def imported(node):
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        if node.module == "mimetic_jax":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield node.module


WITHOUT_FLAX = {
    *("base", "host", "weights", "schemes", "rules", "zoo", "tree", "trained", "data"),
    *("initializers", "torch", "command"),
}


@pytest.mark.parametrize(("folder", "allowed"), [("", ALLOWED), ("data", WINGS)])
def test_imports_point_one_way(folder, allowed):
    graphlib.TopologicalSorter(allowed).prepare()  # raises an error if there is a circle
    within = PACKAGE / folder
    prefix = ".".join(within.relative_to(ROOT).parts)
    for path in within.rglob("*.py"):
        part = path.relative_to(within).with_suffix("").parts[0]
        for name in imports(path) if part in allowed or not folder else ():
            if name.startswith(f"{prefix}."):
                target = name.removeprefix(f"{prefix}.").split(".")[0]
                assert target in allowed[part] | {part}, f"{path} imports {name}"


def test_no_module_imports_itself_through_others():
    """Neither when it runs, nor for the types that it names."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    graph = {module: set() for module in modules}
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = set(imported(node))
            if isinstance(node, ast.ImportFrom):
                inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                names = inside or names
            graph[module] |= names & modules.keys()
    graphlib.TopologicalSorter(graph).prepare()


FOLDERS = {  # beside the package
    "mimetic_jax": set(),
    "configs": {"mimetic_jax"},
    "papers": {"configs", "mimetic_jax"},
    "launch": {"configs", "mimetic_jax", "papers"},
    "benchmarks": {"configs", "mimetic_jax"},
}


def test_folders_import_one_way():
    graphlib.TopologicalSorter(FOLDERS).prepare()
    for folder, allowed in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            roots = {name.partition(".")[0] for name in imports(path)}
            assert roots & {*FOLDERS, "tests"} <= allowed | {folder}, path


def test_main_orbax_and_flax_are_imported_by_few():
    for path in PACKAGE.rglob("*.py"):
        roots = {name.partition(".")[0] for name in imports(path)}
        assert "main" not in roots, path
        assert "orbax" not in roots or path == PACKAGE / "train" / "store" / "checkpoint.py", path
        part = path.relative_to(PACKAGE).with_suffix("").parts[0]
        assert "flax" not in roots or part not in WITHOUT_FLAX, path


def test_readers_are_imported_where_they_are_used():
    """Importing the package loads none of these libraries, which take seconds."""
    heavy = {"tensorflow_datasets", "sklearn", "PIL", "cv2", "grain"}
    for path in (PACKAGE / "data").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = {name.partition(".")[0] for name in imported(node)}
            assert not names & heavy, path
