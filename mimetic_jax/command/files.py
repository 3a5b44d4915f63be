"""Files of weights: `mimetic rewrite`, `check` and `fit` on what any program has saved."""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mimetic_jax import schemes
from mimetic_jax.check import check
from mimetic_jax.errors import InputError, unknown
from mimetic_jax.fit import fit
from mimetic_jax.models.tensor_files import mapped, parts, read_file
from mimetic_jax.rewrite import plan, rewrite_in_place

_FILES = "a .safetensors file, the .index.json of several, a .npz file, or a .pt file of tensors"
_MAPPED = (".safetensors", ".index.json")
_PICKLED = (".pt", ".pth", ".bin")
_SHOWN_BY_CHECK = {"query", "value", "ssm_b"}


def rewrite_file(argv: Sequence[str]) -> None:
    """Copy a file of weights, with a scheme where it applies; everything else byte for byte."""
    parser = _parser("rewrite", rewrite_file.__doc__)
    parser.add_argument("out", metavar="OUT", help="a file of the same kind, or a new folder")
    parser.add_argument(
        "--scheme",
        default="Mimetic",
        help='such as Mimetic, mimetic_language, "Mimetic(beta_qk=0.5)" or "SinCos(),Mimetic()"',
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry-run", action="store_true", help="print the plan, write nothing")
    options, heads = _parsed(parser, argv)
    scheme, key = parse_scheme(options.scheme), jax.random.key(options.seed)
    planned = plan(read(options.file), scheme, **heads)
    print(planned, flush=True)
    if options.dry_run:
        return
    _check_new(options.file, options.out)
    with _beside(options.out) as unfinished:
        _write(options.file, unfinished, key, scheme, heads)
    out = options.out
    if options.file.endswith(".index.json"):
        out = os.path.join(out, os.path.basename(options.file))
    print(f"{options.out}:", flush=True)
    if _SHOWN_BY_CHECK & {write.role for write in planned}:
        print(check(read(out), **heads))


def check_file(argv: Sequence[str]) -> None:
    """How closely each attention layer of a file is aligned with the identity."""
    options, heads = _parsed(_parser("check", check_file.__doc__), argv)
    print(check(read(options.file), **heads))


def fit_file(argv: Sequence[str]) -> None:
    """The constants of a mimetic start that are closest to the weights of a file."""
    options, heads = _parsed(_parser("fit", fit_file.__doc__), argv)
    print(fit(read(options.file), **heads))


def read(path: str) -> Mapping[str, np.ndarray]:
    """The tensors of a file by name; a memory map where the file allows it.

    Raises:
        InputError: for a file that isn't there, of another kind or damaged.
    """
    if path.endswith(_MAPPED):
        return mapped(path)
    if path.endswith(_PICKLED):
        from mimetic_jax import torch as torches

        return torches.read_tensors(path)
    if path.endswith(".npz"):
        return read_file(path)
    raise InputError(f"{path} is not {_FILES}")


def parse_scheme(text: str) -> schemes.Scheme | tuple[schemes.Scheme, ...]:
    """The scheme of an expression of names and numbers; case and underscores don't matter.

    >>> parse_scheme("NormMatched(Mimetic(beta_qk=0.5))").like.beta_qk
    0.5

    Args:
        text: the name of a scheme, a call with its fields, or several with commas between.

    Raises:
        InputError: for anything else.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InputError(f"--scheme={text} is neither a scheme nor a call of one") from error
    return _scheme(tree, text)


def _scheme(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_scheme(element, text) for element in node.elts)
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not isinstance(call.func, ast.Name):
        raise InputError(f"--scheme={text} is neither a scheme nor a call of one")
    name = _SCHEMES.get(_plain(call.func.id))
    if name is None:
        raise unknown("scheme", call.func.id, _SCHEMES.values())
    values = [_value(value, text) for value in call.args]
    fields = {field.arg: _value(field.value, text) for field in call.keywords if field.arg}
    try:
        return getattr(schemes, name)(*values, **fields)
    except TypeError as error:
        raise InputError(f"--scheme={text}: {error}") from error


def _value(node: ast.expr, text: str) -> Any:
    with contextlib.suppress(ValueError):
        return ast.literal_eval(node)
    return _scheme(node, text)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_SCHEMES = {
    _plain(name): name
    for name in schemes.__all__
    if name == "mimetic_language"
    or (
        (isinstance(kind := getattr(schemes, name), type) and issubclass(kind, schemes.Scheme))
        and kind is not schemes.Scheme
    )
}


def _write(file: str, out: str, key: jax.Array, scheme: Any, heads: Mapping[str, Any]) -> None:
    """Write OUT, of which nothing is there yet."""
    if file.endswith(".index.json"):
        os.mkdir(out)
        for part in (file, *parts(file)):
            shutil.copyfile(part, os.path.join(out, os.path.basename(part)))
        index = os.path.join(out, os.path.basename(file))
        rewrite_in_place(key, mapped(index, "r+"), scheme, **heads)
    elif file.endswith(".safetensors"):
        shutil.copyfile(file, out)
        rewrite_in_place(key, mapped(out, "r+"), scheme, **heads)
    elif file.endswith(_PICKLED):
        from mimetic_jax import torch as torches

        torches.rewrite_saved(file, out, key, scheme, **heads)
    else:
        arrays = dict(read(file))
        rewrite_in_place(key, arrays, scheme, **heads)
        with open(out, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)


def _check_new(file: str, out: str) -> None:
    """Raise InputError unless OUT is free and has the name of a file like the one that is read."""
    if os.path.lexists(out):
        raise InputError(f"{out} exists: give a new name")
    suffixes = (".npz", ".safetensors", _PICKLED)
    alike = next((suffix for suffix in suffixes if file.endswith(suffix)), None)
    if alike and not out.endswith(alike):
        kind = alike if isinstance(alike, str) else " or ".join(alike)
        raise InputError(f"{out} is a copy of {file}: give a name that ends in {kind}")


@contextlib.contextmanager
def _beside(out: str) -> Iterator[str]:
    """A name beside OUT, whose content becomes OUT when all of it is written."""
    folder = os.path.dirname(os.path.abspath(out))
    if not os.path.isdir(folder):
        raise InputError(f"there is no folder {folder}")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".mimetic-") as hidden:
        unfinished = os.path.join(hidden, os.path.basename(out))
        yield unfinished
        os.rename(unfinished, out)


def _parser(command: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"mimetic {command}", description=description)
    parser.add_argument("file", metavar="FILE", help=_FILES)
    # The second names are those in error messages.
    parser.add_argument("--heads", "--num_heads", type=int, help="of query")
    parser.add_argument(
        "--kv-heads", "--num_kv_heads", type=int, help="of key and value, where they are fewer"
    )
    return parser


def _parsed(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, dict[str, Any]]:
    options = parser.parse_args(argv)
    return options, {"num_heads": options.heads, "num_kv_heads": options.kv_heads}
