"""Starting from other parameters: a checkpoint of ours, or a pretrained file, or parts of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from mimetic_jax import paths
from mimetic_jax.errors import InputError
from mimetic_jax.models.pretrained import PARTS, PretrainedFile
from mimetic_jax.train.program import Program
from mimetic_jax.train.state import TrainState
from mimetic_jax.train.workdir.checkpoint import read_variables
from mimetic_jax.train.workdir.paths import AnyPath, as_path
from mimetic_jax.weights import select

_FILES = (".npz", ".safetensors")
_HEAD = r"(^|/)head/"


def initial_state(
    program: Program, config: ConfigDict, arm: str, seed: int, say: Callable[[str], None]
) -> TrainState:
    """The state before the first step of a run: model's draw, then `init_from`, then the scheme.

    Args:
        program: of the configuration.
        config: of the arm.
        arm: its name, for "{arm}" in `init_from`.
        seed: of the run.
        say: prints a line.

    Raises:
        InputError: as `warm_start` and `rewrite`.
    """

    def warm(variables: dict[str, Any]) -> dict[str, Any]:
        if not config.init_from:
            return variables
        source = _source(config, arm, seed)
        return warm_start(variables, source, say, parts=config.init_parts, heads=config.init_heads)

    return program.initial_state(seed, config.scheme, warm)


def check_source(config: ConfigDict, arm: str, seed: int) -> None:
    """Check that what a run starts from is there, before the runs before it are trained.

    Raises:
        InputError: it isn't.
    """
    if config.init_from:
        path = as_path(_source(config, arm, seed))
        if not path.exists():
            raise InputError(f"arm {arm} seed {seed}: there is no init_from {path}")


def _source(config: ConfigDict, arm: str, seed: int) -> str:
    return str(config.init_from).replace("{arm}", arm).replace("{seed}", str(seed))


def warm_start(
    variables: dict[str, Any],
    source: str,
    say: Callable[[str], None],
    *,
    parts: Sequence[str] = (),
    heads: str = "whole",
) -> dict[str, Any]:
    """Variables taken from a source; what it doesn't have keeps its initial value.

    - the folder of a run, `WORKDIR/runs/ARM/SEED`, or of one of its checkpoints,
      `WORKDIR/runs/ARM/SEED/checkpoints/STEP`: by weight selection, so that a larger model
      gives evenly spaced weights to a smaller one, and one of the same size all of its own. The
      head keeps its initial value.
    - `.npz` or `.safetensors`, a pretrained ViT: one of the same sizes as `models.load_pretrained`
      reads it, head included where the classes agree; a larger one by weight selection.

    Args:
        variables: "params" and the model's other collections, as initialized.
        source: the folder or file.
        say: prints a line.
        parts: of `models.pretrained.PARTS` to take alone; none: everything.
        heads: of weight selection: "whole" chooses heads and columns of heads, "mixed" evenly
            spaced columns of all heads side by side, so that a head may join two of the source's,
            as in the released code of weight selection.

    Raises:
        InputError: if there is no such source, or it doesn't fit.

    Reference: Mimetic Initialization of Self-Attention Layers, table 2 (attention and positions of
    a pretrained model); Initializing Models with Larger Ones (weight selection).
    """
    path = as_path(source)
    named, treedef = paths.flatten(variables)
    wanted = {name: leaf for name, leaf in named if not re.search(_HEAD, name)}
    if parts:
        chosen_parts = "|".join(PARTS[part] for part in parts)
        wanted = {name: leaf for name, leaf in wanted.items() if re.search(chosen_parts, name)}
    if path.suffix in _FILES:
        params = variables["params"]
        file = PretrainedFile.read(path, say)
        if not parts and file.fits(params):
            return {**variables, "params": file.whole(params, None, say)}
        teacher = {f"params/{name}": array for name, array in file.by_path(params, say).items()}
    else:
        teacher = _checkpoint(path, say)
    flat = (lambda name, array: array) if heads == "whole" else _side_by_side
    chosen = select(
        {name: flat(name, np.asarray(array)) for name, array in teacher.items()},
        {name: flat(name, np.empty(leaf.shape, bool)).shape for name, leaf in wanted.items()},
    )
    say(f"starts from {len(chosen)} of {len(named)} parameters of {path}")
    leaves = [
        jax.device_put(jnp.asarray(chosen[name].reshape(leaf.shape), leaf.dtype), leaf.sharding)
        if name in chosen
        else leaf
        for name, leaf in named
    ]
    return jax.tree.unflatten(treedef, leaves)


def _checkpoint(path: AnyPath, say: Callable[[str], None]) -> dict[str, Any]:
    """The variables of a run by path."""
    chosen_step = path.parent.name == "checkpoints" and path.name.isdecimal()
    folder, step = (path.parent, int(path.name)) if chosen_step else (path / "checkpoints", None)
    if not folder.is_dir():
        raise InputError(
            f"init_from {path} is neither a run's folder (WORKDIR/runs/ARM/SEED) nor a "
            f"{' or '.join(_FILES)} file"
        )
    return dict(paths.flatten(read_variables(folder, say, step))[0])


def _side_by_side(name: str, array: np.ndarray) -> np.ndarray:
    """An attention leaf with its heads flattened into one axis."""
    if name.endswith("attention/out/kernel"):
        return array.reshape(*array.shape[:-3], -1, array.shape[-1])
    if re.search(r"attention/(query|key|value)/(kernel|bias)$", name):
        return array.reshape(*array.shape[:-2], -1)
    return array
