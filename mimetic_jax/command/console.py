"""The installed command `mimetic`: experiments with the package's own configurations."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.exits import reported
from mimetic_jax.base.extras import MissingExtra, need
from mimetic_jax.base.version import __version__
from mimetic_jax.command import shipped

USAGE = """mimetic: initialize, train and compare transformers.

    mimetic train digits_vit
    mimetic train cifar10_vit:width=96,patch=8 --data-dir=DIR --workdir=runs/cifar
    mimetic plan my_config.py --config.batch=256
    mimetic analyze digits_vit --what=products
    mimetic report WORKDIR
    mimetic export WORKDIR ARM --out=FILE.safetensors
    mimetic rewrite IN.safetensors OUT.safetensors --scheme=Mimetic --heads=12
    mimetic check FILE --heads=12
    mimetic fit FILE --heads=12
    mimetic snippet --torch Mimetic
    mimetic configs
    mimetic fields cifar10_vit [WORD]
    mimetic train cifar10_vit:help
    mimetic download cifar10 --data-dir=DIR
    mimetic --version

COMMAND CONFIG [FLAGS] does in any folder what a checkout's
`python main.py --config=configs/CONFIG.py --mode=COMMAND [FLAGS]` does. CONFIG is
a name of the list below, or the path of a config file; --data-dir is short for
--config.data.dir. FILE holds weights that any program has saved: see
`mimetic rewrite --help`. A snippet is one function to paste into another program.
CONFIG:help lists the arguments of a configuration."""


def main() -> None:
    """Run the command line of this process."""
    with reported():
        argv = sys.argv[1:]
        if argv and argv[0] in _OTHERS:
            _OTHERS[argv[0]](argv[1:])
            return
        if argv and argv[0] in ("configs", "--version"):
            if argv[1:]:
                raise InputError(f"mimetic {argv[0]} takes no arguments, but got {argv[1]!r}")
            print(shipped.listing() if argv == ["configs"] else f"mimetic {__version__}")
            return
        asked = not argv or argv[0] in ("help", "--help", "-h") or "--help" in argv
        try:  # afterwards, as importing JAX takes a second
            from mimetic_jax.command import experiment
        except MissingExtra as error:
            if not asked:
                raise
            print(f"{USAGE}\n\n{error}")
            return
        if asked:
            print(f"{USAGE}\n\n{experiment.usage()}")
            return
        sys.argv = ["mimetic", *translate(argv, experiment.MODES)]
    # A model of the user's may lie in the current folder; last, so that it hides nothing installed.
    sys.path.append("")
    experiment.run()


def translate(argv: Sequence[str], modes: Sequence[str]) -> list[str]:
    """The flags of `main.py` that say what a command says.

    >>> translate(["plan", "mine.py:width=96", "--data-dir=DIR"], ("train", "plan"))
    ['--mode=plan', '--config=mine.py:width=96', '--config.data.dir=DIR']

    Args:
        argv: COMMAND, CONFIG, flags.
        modes: what COMMAND may be.

    Raises:
        InputError: unknown command or config, or a command without config.
    """
    command, *rest = argv
    if command not in modes:
        raise unknown("command", command, [*modes, *_OTHERS, "configs"])
    if not rest or rest[0].startswith("-"):
        raise InputError(f"mimetic {command} needs a config: mimetic {command} digits_vit")
    name, colon, arguments = rest[0].partition(":")
    flags = map(shipped.in_full, rest[1:])
    return [f"--mode={command}", f"--config={shipped.path_of(name)}{colon}{arguments}", *flags]


def _download(arguments: Sequence[str]) -> None:
    from mimetic_jax.data import download

    download.main(arguments)


def _report(arguments: Sequence[str]) -> None:
    need("mimetic report", "train")
    from mimetic_jax.analysis import report_page

    report_page.main(arguments)


def _export(arguments: Sequence[str]) -> None:
    need("mimetic export", "train")
    from mimetic_jax.command import export

    export.main(arguments)


def _on_file(command: str, arguments: Sequence[str]) -> None:
    from mimetic_jax.command import files

    getattr(files, f"{command}_file")(arguments)


def _snippet(arguments: Sequence[str]) -> None:
    from mimetic_jax.command import snippet

    snippet.main(arguments)


_OTHERS: dict[str, Callable[[Sequence[str]], None]] = {
    "download": _download,
    "report": _report,
    "export": _export,
    "snippet": _snippet,
    **{name: functools.partial(_on_file, name) for name in ("rewrite", "check", "fit")},
}
