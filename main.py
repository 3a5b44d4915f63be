"""Command line: train, evaluate, compare, plan or analyze a configuration.

    python main.py --config=configs/digits_vit.py
    python main.py --config=configs/cifar10_vit.py:width=96,patch=8 --config.data.dir=DIR \
        --workdir=runs/cifar --mode=plan
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

from absl import app, flags, logging
from ml_collections import config_flags

from mimetic_jax.errors import InputError

MODES = ("train", "eval", "compare", "plan", "analyze")

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Experiment: configs/NAME.py[:arg=value,…]"
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Where runs live; runs/NAME unless given.")
_MODE = flags.DEFINE_enum(
    "mode",
    "train",
    MODES,
    "train: run what isn't finished, then the table; eval: test the newest checkpoints; "
    "compare: rebuild the table; plan: print what would be done; analyze: weight products.",
)


def main(argv: Sequence[str]) -> None:
    """Run the mode; `argv` is what remains after the flags."""
    if len(argv) > 1:
        raise InputError(f"unexpected argument {argv[1]!r}: flags start with --")
    if _CONFIG.value is None:
        raise InputError("give a config: --config=configs/digits_vit.py")
    logging.set_verbosity(logging.WARNING)  # JAX and Orbax tell their phases at INFO
    # After the flags: importing JAX takes a second, and a typo shouldn't.
    from mimetic_jax.analysis.products import analyze
    from mimetic_jax.train import compare

    config = _CONFIG.value
    workdir = pathlib.Path(_WORKDIR.value or f"runs/{config.name}")
    comparison = compare.Comparison(config)
    if _MODE.value == "plan":
        print(compare.describe(comparison))
    elif _MODE.value == "train":
        print(comparison.train(workdir))
    elif _MODE.value == "compare":
        print(comparison.table(workdir))
    elif _MODE.value == "eval":
        print(comparison.evaluate(workdir))
    else:
        print(analyze(comparison, workdir))


def _parse(argv: Sequence[str]) -> list[str]:
    """The flags, every mistake in them told in one line."""
    try:
        return list(flags.FLAGS(list(argv)))
    except (flags.Error, AttributeError, KeyError, TypeError, OSError) as error:
        raise InputError(" ".join(str(error).split())) from error


def run(argv: Sequence[str] = sys.argv) -> None:
    """`main`, with bad input told in one line instead of a trace."""
    try:
        app.run(main, argv=list(argv), flags_parser=_parse)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    run()
