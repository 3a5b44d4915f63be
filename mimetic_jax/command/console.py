"""The installed command `mimetic`: experiments with the package's own configurations."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.exits import reported
from mimetic_jax.base.extras import need
from mimetic_jax.base.version import __version__
from mimetic_jax.command import shipped, usage

USAGE = """mimetic: initialize, train and compare transformers.

train the arms of a configuration    mimetic train digits_vit
  with its arguments and fields      mimetic train digits_vit:depth=2 --config.batch=64
  on data of a folder                mimetic train cifar10_vit --data-dir=DIR
preview a training run               mimetic plan my_config.py
test the newest checkpoints          mimetic eval digits_vit
rebuild the results table            mimetic compare digits_vit
draw what was trained                mimetic analyze digits_vit --what=products
compile for other hardware           mimetic compile digits_vit --target=v5e:2x2
list the fields of a configuration   mimetic fields cifar10_vit [WORD]
list its arguments                   mimetic train cifar10_vit:help
list all configurations              mimetic configs
get a data set                       mimetic download cifar10 --data-dir=DIR
write a page about finished runs     mimetic report WORKDIR
save trained weights                 mimetic export WORKDIR ARM --out=FILE.safetensors
initialize weights in a file         mimetic rewrite IN.safetensors OUT.safetensors
measure the structure of a file      mimetic check FILE --heads=12
find the scheme closest to a file    mimetic fit FILE --heads=12
print the version                    mimetic --version

A configuration is a name that `mimetic configs` lists, or the path of a file.
`mimetic COMMAND --help` lists the flags of a command."""


def main() -> None:
    """Run the command line of this process."""
    # Models and schemes of the user's may be in the current folder; last, so that it hides nothing
    # installed.
    sys.path.append("")
    with reported():
        argv = sys.argv[1:]
        if argv and argv[0] in _OTHERS:
            if argv[0] in ("report", "export"):
                need(f"mimetic {argv[0]}", "train")
            module, _, name = _OTHERS[argv[0]].partition(":")
            getattr(importlib.import_module(f"mimetic_jax.{module}"), name)(argv[1:])
            return
        if not argv or argv[0] in ("help", "--help", "-h") or argv == ["configs", "--help"]:
            print(USAGE)
            return
        if argv[0] in ("configs", "--version"):
            if argv[1:]:
                raise InputError(f"mimetic {argv[0]} takes no arguments, but got {argv[1]!r}")
            print(shipped.listing() if argv == ["configs"] else f"mimetic {__version__}")
            return
        if argv[0] in usage.EXPERIMENTS and not {"--help", "-h"}.isdisjoint(argv):
            print(usage.of_experiment(argv[0]))
            return
        # Afterwards, as importing JAX takes a second.
        from mimetic_jax.command import experiment

        sys.argv = ["mimetic", *translate(argv, experiment.MODES)]
    experiment.run()


def translate(argv: Sequence[str], modes: Sequence[str]) -> list[str]:
    """Return the flags of `main.py` for COMMAND, one of the modes, CONFIG and flags.

    >>> translate(["plan", "mine.py:width=96", "--data-dir=DIR"], ("train", "plan"))
    ['--mode=plan', '--config=mine.py:width=96', '--config.data.dir=DIR']
    """
    command, *rest = argv
    if command not in modes:
        raise unknown("command", command, [*modes, *_OTHERS, "configs"])
    if not rest or rest[0].startswith("-"):
        raise InputError(f"mimetic {command} needs a config: mimetic {command} digits_vit")
    return [f"--mode={command}", f"--config={rest[0]}", *map(shipped.in_full, rest[1:])]


_OTHERS = {
    "download": "data.download:main",
    "report": "analysis.report_page:main",
    "export": "command.export:main",
    **{name: f"command.files:{name}_file" for name in ("rewrite", "check", "fit")},
}
"""The modules and functions of commands that take no configuration, imported when they are run."""
