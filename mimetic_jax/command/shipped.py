"""The configurations that come with the package: those of `configs/`, by name."""

from __future__ import annotations

import ast
import pathlib
import re
import runpy
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mimetic_jax.base.errors import InputError, innermost, unknown
from mimetic_jax.base.exits import Answered
from mimetic_jax.base.table import aligned, paragraph

if TYPE_CHECKING:
    from ml_collections import ConfigDict

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
    return list(_titles())


def path_of(name: str) -> pathlib.Path:
    """The file of a configuration: a name of `names`, or a path to a user's file.

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


def load(config: str) -> ConfigDict:
    """A configuration by its name and arguments, to change and to give to a `Comparison`.

    >>> load("digits_vit:width=32").model.width
    32

    Args:
        config: NAME or NAME:ARGUMENT=VALUE,...; or so with the path of a config file.

    Raises:
        InputError: there is no such file or argument, or the file can't be read.
    """
    name, _, arguments = config.partition(":")
    return read(path_of(name), arguments)


def read(file: pathlib.Path, arguments: str) -> ConfigDict:
    """The configuration of a file, or the error that names the file if that is at fault.

    Raises:
        Answered: for the arguments "help", with their names and defaults.
    """
    make_importable()
    try:
        return runpy.run_path(str(file))["get_config"](*([arguments] if arguments else []))
    except (InputError, Answered):
        raise
    except Exception as error:  # it is a program
        reason = f"{type(error).__name__}: {innermost(error)}"
        raise InputError(f"config file {file} can't be read ({reason})") from error


def explained(file: pathlib.Path) -> str:
    """What a configuration trains, and its arguments with their defaults.

    >>> print(explained(path_of("digits_vit")))
    A ViT on scikit-learn's 8×8 digits: the demo's images, no download.
    <BLANKLINE>
      width=64
      depth=4
      heads=2
      patch=2
      steps=200
    <BLANKLINE>
    Arguments: width, depth, heads, patch, steps.
    """
    try:
        read(file, "help")
    except Answered as answer:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        function = next(node for node in tree.body if getattr(node, "name", "") == "get_config")
        title = (ast.get_docstring(tree) or "").partition("\n")[0]
        said = ast.get_docstring(function) if isinstance(function, ast.FunctionDef) else None
        about = [paragraph(" ".join(part.split()), "") for part in (said or "").split("\n\n")]
        return "\n\n".join([paragraph(title), str(answer), *about]).rstrip()
    raise InputError(f"{file} takes no arguments by configs.default.arguments")


def listing() -> str:
    """A line or two for each configuration: its name and what it trains."""
    rows = [(f"  {name}", title) for name, title in _titles().items()]
    return "\n".join(aligned(rows, wrapped=1) if rows else [])


def in_full(flag: str) -> str:
    """A flag as it is declared: with underscores, --data_dir as the field that it is short for.

    >>> in_full("--data-dir=DIR"), in_full("--num-processes=2"), in_full("--config.batch=8")
    ('--config.data.dir=DIR', '--num_processes=2', '--config.batch=8')
    """
    name, equals, value = flag.partition("=")
    if not re.fullmatch(r"--?[a-z][a-z_-]*", name):
        return flag
    name = name[:2] + name[2:].replace("-", "_")
    return f"{'--config.data.dir' if name == '--data_dir' else name}{equals}{value}"


def separated(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line that set no field, and those that do, each with its value.

    >>> separated(["main.py", "--config=mine.py", "--config.seeds", "0-3", "--config.batch=8"])
    (['main.py', '--config=mine.py'], ['--config.seeds=0-3', '--config.batch=8'])
    """
    others, found = [], list[str]()
    words = list(argv)
    while words:
        word = words.pop(0)
        if not re.match(r"--?config\.", word):
            others.append(word)
            continue
        if "=" not in word and words and not re.match(r"--?[A-Za-z]", words[0]):
            word = f"{word}={words.pop(0)}"
        found.append(f"--{word.lstrip('-')}")
    return others, found


def usage() -> str:
    """How fields and arguments are given, and all configurations."""
    return (
        "--config.FIELD=VALUE sets a field of the configuration; --mode=fields lists all.\n"
        "NAME:ARGUMENT=VALUE,... gives arguments, and NAME:help lists them.\n\n"
        f"configurations:\n{listing()}"
    )


def _titles() -> dict[str, str]:
    """The first line of the docstring of each file that has a configuration, by name."""
    paths = sorted(folder().glob("*.py"))
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    return {
        name: (ast.get_docstring(tree) or "").partition("\n")[0]
        for name, tree in trees.items()
        if "get_config" in (getattr(node, "name", "") for node in tree.body)
    }
