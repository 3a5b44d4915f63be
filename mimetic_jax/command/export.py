"""`mimetic export`: the weights of a trained run as a file that other programs read."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from absl import logging
from safetensors import SafetensorError
from safetensors.numpy import save_file

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.command.outputs import check_output
from mimetic_jax.train.config import arms_of, from_json
from mimetic_jax.train.pretrained import trained_variables
from mimetic_jax.train.store.claim import Claim
from mimetic_jax.train.store.files import path_of
from mimetic_jax.train.store.runs import Run


def make_parser() -> argparse.ArgumentParser:
    """Return the arguments of `mimetic export`."""
    parser = argparse.ArgumentParser("mimetic export", description=main.__doc__)
    parser.add_argument("workdir", metavar="WORKDIR", help="a folder or gs://BUCKET/…")
    parser.add_argument("arm", metavar="ARM", help="an arm of the workdir, such as mimetic")
    parser.add_argument(
        "--out", metavar="FILE.safetensors", required=True, help="the file to write (required)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="(default: the first seed of the configuration)"
    )
    return parser


def main(arguments: Sequence[str]) -> None:
    """Write the newest checkpoint of a run of a workdir to a .safetensors file."""
    given = make_parser().parse_args(arguments)
    logging.set_verbosity(logging.FATAL)  # what Orbax logs as errors it also raises
    print(export(given.workdir, given.arm, given.out, given.seed))


def export(workdir: str, arm: str, out: str, seed: int | None = None) -> str:
    """Write the parameters and the model state of a run; returns what was written, in words.

    Names are paths such as block_0/attention/query/kernel; those of model state, as of BatchNorm,
    begin with the name of their collection, batch_stats.
    """
    check_output("--out", out, ".safetensors")
    config = from_json(Claim.of(path_of(workdir)).config)
    if arm not in (arms := arms_of(config)):
        raise unknown("arm", arm, arms)
    seeds = tuple(config.seeds)
    if seed is not None and seed not in seeds:
        raise unknown("seed", seed, map(str, seeds))
    run = Run.of(workdir, arm, seeds[0] if seed is None else seed)
    step, variables = trained_variables(run)
    tensors = {path.removeprefix("params/"): np.asarray(x) for path, x in variables.items()}
    try:
        save_file(tensors, out, {"arm": run.arm, "seed": str(run.seed), "step": str(step)})
    except SafetensorError as error:
        raise InputError(f"--out={out}: {error}") from error
    count = sum(array.size for array in tensors.values())
    return f"{out}: {run}, step {step:,}, {len(tensors)} tensors, {count:,} numbers"
