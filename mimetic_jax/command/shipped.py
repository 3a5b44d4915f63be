"""The configurations that come with the package: those of `configs/`, by name."""

from __future__ import annotations

import ast
import pathlib
import sys

from mimetic_jax.errors import InputError, unknown

_PACKAGE = pathlib.Path(__file__).parent.parent


def folder() -> pathlib.Path:
    """The folder of the configurations: of a checkout, or the copy inside an installed package."""
    copy = _PACKAGE / "shipped" / "configs"
    return copy if copy.is_dir() else _PACKAGE.parent / "configs"


def make_importable() -> None:
    """Let config files import their shared parts as `configs.default`, from any directory."""
    root = str(folder().parent)
    if root not in sys.path:
        sys.path.insert(0, root)


def names() -> list[str]:
    """The names of all configurations.

    >>> {"cifar10_vit", "imagenet_deit", "wikitext103"} <= set(names())
    True
    >>> "default" in names()  # a shared part
    False
    """
    return sorted(path.stem for path in folder().glob("*.py") if _is_config(path))


def path_of(name: str) -> pathlib.Path:
    """The file of a configuration: a name of `names`, or a path to a file of one's own.

    >>> path_of("cifar10_vit").name
    'cifar10_vit.py'

    Raises:
        InputError: there is none; names the nearest.
    """
    if name.endswith(".py"):
        return pathlib.Path(name)
    if not (known := names()):
        raise InputError(f"{folder()} has no configurations: give the path of a config file")
    if name not in known:
        raise unknown("config", name, known)
    return folder() / f"{name}.py"


def listing() -> str:
    """One line for each configuration: its name and what it trains."""
    width = max(map(len, names()), default=0)
    return "\n".join(f"  {name:{width}}  {_summary(path_of(name))}" for name in names())


def _is_config(path: pathlib.Path) -> bool:
    functions = (node for node in _tree(path).body if isinstance(node, ast.FunctionDef))
    return any(function.name == "get_config" for function in functions)


def _summary(path: pathlib.Path) -> str:
    """The first line of a file's docstring."""
    return (ast.get_docstring(_tree(path)) or "").partition("\n")[0]


def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
