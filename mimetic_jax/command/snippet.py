"""`mimetic snippet`: a scheme as one function to paste, for who wants no dependency."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
from collections.abc import Sequence

from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import shown
from mimetic_jax.base.version import __version__
from mimetic_jax.command.expressions import parse_scheme
from mimetic_jax.schemes import Mimetic

_CONSTANTS = ("alpha_qk", "beta_qk", "alpha_vo", "beta_vo")


def main(argv: Sequence[str]) -> None:
    """Print a function that draws by a scheme, or by its control, without mimetic_jax."""
    parser = argparse.ArgumentParser("mimetic snippet", description=main.__doc__)
    library = parser.add_mutually_exclusive_group(required=True)
    for name in ("numpy", "torch"):
        library.add_argument(f"--{name}", dest="library", action="store_const", const=name)
    parser.add_argument(
        "scheme",
        nargs="?",
        default="Mimetic",
        help='Mimetic, mimetic_language, or with other constants, such as "Mimetic(beta_qk=0.5)"',
    )
    options = parser.parse_args(argv)
    print(snippet(options.library, options.scheme), end="")


def snippet(library: str, scheme: str) -> str:
    """The source of the function, with the constants of the scheme, which is a `Mimetic`."""
    parsed = parse_scheme(scheme)
    constants = {name: getattr(parsed, name, None) for name in _CONSTANTS}
    numbers = all(isinstance(value, float) for value in constants.values())
    if not numbers or dataclasses.replace(Mimetic(), **constants) != parsed:  # type: ignore[arg-type]
        raise InputError(
            f"there is no snippet of {shown(parsed)}: Mimetic has one, with numbers for "
            f"{', '.join(_CONSTANTS)} and its other fields as they are"
        )
    file = pathlib.Path(__file__).parent / "snippets" / f"for_{library}.py"
    source = file.read_text(encoding="utf-8")
    for name, value in constants.items():
        source = re.sub(rf"\b{name}=[-.\d]+", f"{name}={value}", source)
    return f"# By mimetic_jax {__version__} (Apache-2.0): mimetic snippet --{library}\n{source}"
