"""The configurations that come with the package: those of `configs/`, by name."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import inspect
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mimetic_jax.base.errors import InputError, innermost, unknown
from mimetic_jax.base.exits import EarlyExit
from mimetic_jax.base.table import aligned, paragraph

if TYPE_CHECKING:
    from ml_collections import ConfigDict

_PACKAGE = pathlib.Path(__file__).parent.parent


def folder() -> pathlib.Path:
    """Return the folder of the configurations: of a checkout, or the copy inside an installed
    package."""
    copy = _PACKAGE / "shipped" / "configs"
    return copy if copy.is_dir() else _PACKAGE.parent / "configs"


def names() -> list[str]:
    """Return the names of all configurations, without their shared parts."""
    return list(_titles())


def path_of(name: str) -> pathlib.Path:
    """Return the file of a configuration: a name of `names`, or a path to a user's file."""
    if name.endswith(".py"):
        return pathlib.Path(name)
    if not (known := names()):
        raise InputError(f"{folder()} has no configurations; pass the path of a file, FILE.py")
    if name not in known:
        wrong = unknown("configuration", name, known, "mimetic configs")
        raise InputError(f"{wrong}. For a file of yours write {name}.py")
    return folder() / f"{name}.py"


def load(config: str) -> ConfigDict:
    """Return a configuration by its name and arguments, to change and to give to a `Comparison`.

    >>> load("digits_vit:width=32").model.width
    32

    Args:
        config: NAME or NAME:ARGUMENT=VALUE,...; or so with the path of a config file.

    Raises:
        EarlyExit: for NAME:help, with the arguments and their defaults.
        InputError: there is no such file or argument, or the file can't be read.
    """
    name, _, arguments = config.partition(":")
    module = module_of(path_of(name))
    if arguments == "help":
        raise EarlyExit(explained(path_of(name)))
    return configuration(module, parsed(module, arguments))


def module_of(file: pathlib.Path) -> ModuleType:
    """Return the module of a config file, which can import the shared parts as
    `configs.default`."""
    if not file.is_file():
        raise InputError(f"there is no config file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(str(file), file)
    assert spec is not None
    assert spec.loader is not None
    # Modules and dataclasses that it defines look their names up there.
    sys.modules[str(file)] = module = importlib.util.module_from_spec(spec)
    with _reading(module):
        spec.loader.exec_module(module)
        module.get_config  # noqa: B018
    return module


def configuration(module: ModuleType, arguments: Mapping[str, Any]) -> ConfigDict:
    """Return what the `get_config` of a config file returns for some arguments."""
    with _reading(module):
        return module.get_config(**arguments)


@contextlib.contextmanager
def _reading(module: ModuleType) -> Iterator[None]:
    try:
        with _shared_parts():
            yield
    except InputError:
        raise
    except Exception as error:  # it is a program
        reason = f"{type(error).__name__}: {innermost(error)}"
        raise InputError(f"config file {module.__file__} can't be read ({reason})") from error


_PARTS: dict[str, ModuleType] = {}
"""The package `configs` and its modules, by name, where a program has another of that name."""


@contextlib.contextmanager
def _shared_parts() -> Iterator[None]:
    """`configs` is this package's, whatever the path or the program has under that common name.

    What the program has comes back afterwards. Other folders of that name on the path, without the
    code of their `__init__`, come after ours: a config file in one can import its neighbors.
    """
    if str(folder()) in getattr(sys.modules.get("configs"), "__path__", ()):
        yield  # by a file that reads another, or imported from a checkout
        return
    theirs = _taken_out()
    sys.modules.update(_PARTS or {"configs": _package()})
    try:
        yield
    finally:
        _PARTS.update(_taken_out())
        sys.modules.update(theirs)


def _package() -> ModuleType:
    spec = importlib.machinery.ModuleSpec("configs", None, is_package=True)
    others = (pathlib.Path(entry) / "configs" for entry in sys.path)
    spec.submodule_search_locations = [
        str(folder()),
        *map(str, filter(pathlib.Path.is_dir, others)),
    ]
    return importlib.util.module_from_spec(spec)


def _taken_out() -> dict[str, ModuleType]:
    """Modules of `configs`, which nobody finds any more."""
    names = [name for name in sys.modules if name.partition(".")[0] == "configs"]
    return {name: sys.modules.pop(name) for name in names}


def arguments_of(module: ModuleType) -> dict[str, Any]:
    """Return the arguments of `get_config`, with their defaults."""
    signature = inspect.signature(module.get_config)
    return {
        name: "" if parameter.default is parameter.empty else parameter.default
        for name, parameter in signature.parameters.items()
        if parameter.kind is not parameter.POSITIONAL_ONLY
    }


def values_of(config: str, *names: str) -> dict[str, Any]:
    """Return the values of those of some arguments that NAME:ARGUMENT=VALUE,... has.

    >>> values_of("digits_vit:width=64", "epochs", "width")
    {'width': 64}
    """
    name, _, arguments = config.partition(":")
    module = module_of(path_of(name))
    values = {**arguments_of(module), **parsed(module, arguments)}
    return {name: values[name] for name in names if name in values}


def parsed(module: ModuleType, text: str) -> dict[str, Any]:
    """Return the arguments of `--config=FILE.py:NAME=VALUE,...`, typed like their defaults.

    The first one may be without its name. Names in a tuple are joined by "+".

    >>> parsed(module_of(path_of("text")), "word,width=64,init=default+log_p")
    {'level': 'word', 'width': 64, 'init': ('default', 'log_p')}
    """
    defaults, values = arguments_of(module), dict[str, Any]()
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not (equals or values or name in defaults) and defaults:
            name, equals, value = next(iter(defaults)), "=", name
        if name not in defaults:
            raise unknown("config argument", name, defaults)
        kind = type(defaults[name])
        try:
            if not equals or (kind is bool and value not in ("True", "False")):
                raise ValueError
            if kind is tuple:
                values[name] = tuple(value.split("+"))
            else:
                values[name] = value == "True" if kind is bool else kind(value)
        except ValueError:
            raise InputError(f"config argument {item!r}: {name} takes a {kind.__name__}") from None
    return values


def explained(file: pathlib.Path) -> str:
    """Return what a configuration trains, and its arguments with their defaults."""
    module = module_of(file)
    title = (module.__doc__ or "").strip().partition("\n")[0]
    defaults = arguments_of(module).items()
    given = [f"  {k}={'+'.join(v) if isinstance(v, tuple) else v}" for k, v in defaults]
    said = inspect.getdoc(getattr(module.get_config, "func", module.get_config)) or ""
    about = [paragraph(" ".join(part.split()), "") for part in said.split("\n\n")]
    return "\n\n".join([paragraph(title), "\n".join(given), *about]).rstrip()


def listing() -> str:
    """Return a line or two for each configuration: its name and what it trains."""
    rows = [(f"  {name}", title) for name, title in _titles().items()]
    return "\n".join(aligned(rows, wrapped=1) if rows else [])


def in_full(flag: str) -> str:
    """Return a flag as it is declared: with underscores, or as the field that it is short for.

    >>> in_full("--data-dir=DIR"), in_full("--num-processes=2"), in_full("--config.batch=8")
    ('--config.data.dir=DIR', '--num_processes=2', '--config.batch=8')
    """
    name, equals, value = flag.partition("=")
    if not re.fullmatch(r"--?[a-z][a-z_-]*", name):
        return flag
    name = name[:2] + name[2:].replace("-", "_")
    return f"{_SHORT.get(name, name)}{equals}{value}"


_SHORT = {"--data_dir": "--config.data.dir", "--rates": "--config.rates"}


def separated(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command line that set no field, and those that do, each with its value.

    >>> separated(["main.py", "--config=mine.py", "--config.seeds", "0-3", "--config.batch=8"])
    (['main.py', '--config=mine.py'], ['--config.seeds=0-3', '--config.batch=8'])
    """
    others, fields = [], list[str]()
    words = list(argv)
    while words:
        word = words.pop(0)
        if not re.match(r"--?config\.", word):
            others.append(word)
            continue
        if "=" not in word and words and not re.match(r"--?[A-Za-z]", words[0]):
            word = f"{word}={words.pop(0)}"
        fields.append(f"--{word.lstrip('-')}")
    return others, fields


def _titles() -> dict[str, str]:
    """The first line of the docstring of each file that has a configuration, by name."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder().glob("*.py")}
    return {
        name: text.removeprefix('"""').partition("\n")[0]
        for name, text in sorted(texts.items())
        if re.search("^(def get_config|get_config = )", text, re.MULTILINE)
    }
