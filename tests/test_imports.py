"""Imports go one way, importing the library stays cheap, and every text is UTF-8."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "mimetic_jax"
ALLOWED = {
    "base": set(),
    "host": {"base"},
    "weights": {"base", "host"},
    "schemes": {"base", "host", "weights"},
    "rules": {"base"},
    "zoo": {"base", "rules"},
    "tree": {"base", "host", "rules", "schemes", "weights", "zoo"},
    "trained": {"base", "host", "rules", "schemes", "tree", "weights", "zoo"},
    "initializers": {"base", "schemes", "tree", "weights"},
    "linen": {"base", "schemes", "tree"},
    "nnx": {"base", "schemes", "tree", "weights"},
    "torch": {"base", "rules", "schemes", "tree", "weights", "zoo"},
    "models": {"base", "rules", "weights"},  # no scheme
    "data": {"base", "host"},
    "train": {"base", "data", "host", "models", "rules", "schemes", "tree", "weights", "zoo"},
    "analysis": {
        *("base", "data", "host", "models", "rules", "schemes", "train", "trained", "tree"),
        "weights",
    },
    "command": {
        *("analysis", "base", "data", "host", "models", "rules", "schemes", "torch", "train"),
        *("trained", "tree", "zoo"),
    },
    "__init__": {"base", "rules", "schemes", "trained", "tree", "weights", "zoo"},
}
"""By folder, or by module at the root; each imports what stands above it."""


WINGS = {  # inside data
    "augment": set(),
    "files": {"home"},
    "text": {"download", "home"},
    "sets": {"download", "files", "home"},
    "feed": {"files", "sets", "text"},
    "recall": set(),
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


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for name in imports(path):
            root, _, rest = name.partition(".")
            assert root != "main"
            if root == "mimetic_jax" and rest:
                target = rest.split(".")[0]
                assert target in ALLOWED[part] | {part}, f"{path} imports {name}"
            if root == "orbax":
                assert path == PACKAGE / "train" / "store" / "checkpoint.py"
            assert root != "flax" or part not in WITHOUT_FLAX, path


def test_readers_are_imported_where_they_are_used():
    """Importing the package loads none of these libraries, which take seconds."""
    heavy = {"tensorflow_datasets", "sklearn", "PIL", "cv2", "grain"}
    for path in (PACKAGE / "data").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = {name.partition(".")[0] for name in imported(node)}
            assert not names & heavy, path


def test_the_wings_of_data_point_one_way():
    for path in (PACKAGE / "data").glob("*/*.py"):
        wing = path.parent.name
        for name in imports(path):
            target = name.removeprefix("mimetic_jax.data.").split(".")[0]
            if name.startswith("mimetic_jax.data."):
                assert target in WINGS[wing] | {wing}, f"{path} imports {name}"


PROGRAM = [
    ROOT / "main.py",
    *(
        path
        for folder in ("mimetic_jax", "launch", "papers", "configs", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ),
]


def unnamed(source: str) -> list[int]:
    """The lines of calls that open a text without naming its encoding."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        named = {keyword.arg for keyword in node.keywords}
        if name in ("read_text", "write_text"):
            of_metadata = name == "read_text" and node.args  # the file of an installed package
            wrong = "encoding" not in named and not of_metadata
        elif name in ("open", "fdopen"):
            given = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
            modes = [a.value for a in given if isinstance(a, ast.Constant)]
            binary = any(isinstance(mode, str) and "b" in mode for mode in modes)
            text = (name == "open" and isinstance(node.func, ast.Name)) or modes
            wrong = bool(text) and not binary and not {"encoding", "force_zip64"} & named
        else:
            continue
        if wrong:
            found.append(node.lineno)
    return found


def test_encodings_are_named():
    wrong = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in PROGRAM
        for line in unnamed(path.read_text(encoding="utf-8"))
    }
    assert not wrong
