"""Starting from other parameters: a checkpoint of ours, or a pretrained file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mimetic_jax import models, paths
from mimetic_jax.errors import InputError
from mimetic_jax.train.workdir.checkpoint import read_variables
from mimetic_jax.train.workdir.paths import as_path
from mimetic_jax.weights import select

_FILES = (".npz", ".safetensors")


def warm_start(
    variables: dict[str, Any], source: str, arm: str, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Variables taken from a source; what it doesn't have keeps its initial value.

    - the folder of a run, `WORKDIR/runs/ARM/SEED`, or of one of its checkpoints,
      `WORKDIR/runs/ARM/SEED/checkpoints/STEP`: by weight selection, so that a larger model
      gives evenly spaced weights to a smaller one, and one of the same size all of its own. The
      head keeps its initial value.
    - `.npz` or `.safetensors`: a pretrained ViT, see `models.load_pretrained`.

    Args:
        variables: "params" and the model's other collections, as initialized.
        source: the folder or file; "{arm}" and "{seed}" in it are filled in.
        arm: of the run.
        seed: of the run.
        say: prints a line.

    Raises:
        InputError: if there is no such source, or it doesn't fit.
    """
    path = as_path(source.replace("{arm}", arm).replace("{seed}", str(seed))).expanduser()
    if path.suffix in _FILES:
        params = models.load_pretrained(path, variables["params"], say=say)
        return {**variables, "params": params}
    chosen_step = path.parent.name == "checkpoints" and path.name.isdecimal()
    folder, step = (path.parent, int(path.name)) if chosen_step else (path / "checkpoints", None)
    if not folder.is_dir():
        raise InputError(
            f"init_from {path} is neither a run's folder (WORKDIR/runs/ARM/SEED) nor a "
            f"{' or '.join(_FILES)} file"
        )
    named, treedef = paths.flatten(variables)
    teacher = dict(paths.flatten(read_variables(folder, say, step))[0])
    chosen = select(teacher, {name: leaf.shape for name, leaf in named})
    say(f"starts from {len(chosen)} of {len(named)} parameters of {path}")
    leaves = [
        jax.device_put(jnp.asarray(chosen[name], leaf.dtype), leaf.sharding)
        if name in chosen
        else leaf
        for name, leaf in named
    ]
    return jax.tree.unflatten(treedef, leaves)
