"""Write the shards that each process holds of a state to FOLDER, at saving or after restoring it.

python dump.py [JOINING FLAGS] CONFIG WORKDIR FOLDER save|restore DATA
"""

from __future__ import annotations

import pathlib
import runpy
import sys

import jax
import numpy as np

from mimetic_jax.command import shipped
from mimetic_jax.train.cluster import processes
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.checkpoint import Checkpoints
from mimetic_jax.train.store.runs import Run


def dump(state, folder):
    folder.mkdir(parents=True, exist_ok=True)
    held = {}
    for path, leaf in jax.tree.leaves_with_path(state):
        for shard in leaf.addressable_shards:
            if shard.replica_id == 0:
                corner = "_".join(str(index.start or 0) for index in shard.index)
                shape = "_".join(map(str, leaf.shape))
                held[f"{jax.tree_util.keystr(path)} {shape} at {corner}"] = np.asarray(shard.data)
    np.savez(folder / f"{jax.process_index()}.npz", **held)


def main(arguments):
    joining = dict(item[2:].split("=") for item in arguments if item.startswith("--"))
    if joining:
        numbers = (int(joining[name]) for name in ("num_processes", "process_id"))
        processes.join(joining["coordinator"], *numbers, False)
    config, workdir, folder, what, data = arguments[len(joining) :]
    shipped.make_importable()
    config = runpy.run_path(config)["get_config"]()
    config.data.dir = data
    workdir, folder = pathlib.Path(workdir), pathlib.Path(folder)
    comparison = Comparison(config)
    if what == "restore":
        comparison.open()  # the data sets the vocabulary size
        dump(comparison.restored(Run.of(workdir, "run", 0)), folder)
        return
    save = Checkpoints.save

    def dump_and_save(self, state, *rest):
        dump(state, folder)
        save(self, state, *rest)

    Checkpoints.save = dump_and_save
    comparison.train(workdir)


if __name__ == "__main__":
    main(sys.argv[1:])
