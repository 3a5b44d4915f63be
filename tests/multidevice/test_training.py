"""Models and groups of runs train the same however parameters and batches are sharded."""

import jax
import numpy as np

from configs.default import default, model
from mimetic_jax import data
from mimetic_jax.data.text.corpus import Corpus
from mimetic_jax.train.cluster.mesh import make_mesh
from mimetic_jax.train.state import stream
from mimetic_jax.train.tasks import TASKS
from tests.training import RATES, program_of
from tests.typical import typical

SMALL = {"width": 16, "depth": 2, "patch": 2, "scan": True}
MODELS = {
    "mixer": SMALL,
    "convmixer": SMALL | {"filter_size": 3},
    "convnext": SMALL | {"filter_size": 3},
    "gpt": {"width": 16, "depth": 2, "heads": 2, "scan": True},
    "tests.plugged:TinyBatchNorm": {"width": 16},
}
WHOLE = {"tests.plugged:TinyBatchNorm"}
"""Models whose few parameters every device has."""


def trained(name, *axes):
    """Losses of three steps, the state after them, and test losses of parameters and average."""
    config = default("text" if name == "gpt" else "images")
    config.batch, config.steps, config.max_dispatch, config.eval.batch = 32, 3, 3, 72
    config.ema = 0.9
    config.model = model(name, **MODELS[name])
    if name == "gpt":
        config.data.update(name="ptb_word", length=12, valid=8)
        random = np.random.default_rng(0)
        tokens = (random.integers(0, 50, count).astype(np.int32) for count in (900, 103, 131))
        dataset = Corpus("made up", tuple(map(str, range(50))), *tokens, "word")
        info = TASKS["text"].describe(config, dataset)
    else:
        dataset, info = data.load_dataset("digits"), data.describe("digits")
    mesh = make_mesh(*axes, devices=jax.devices()[: np.prod(axes)])
    program = program_of(config, info, mesh)
    placed = program.feed.place(dataset)
    keys = stream(0, "data"), stream(0, "dropout")
    arrays = next(program.feed.session(placed, keys[0], 0, 3))
    state, history = program.compiled_dispatch(
        program.initial_state(0, ()), arrays, *keys, 3, RATES
    )
    results = [program.evaluate(each, placed)[0] for each in (state.variables, state.ema)]
    tested = [result.values["loss"] for result in results]
    return np.asarray(history["loss"]), state, tested


@typical("name", WHOLE, slow=sorted(MODELS.keys() - WHOLE))
def test_data_fsdp_and_tensor_together(name):
    """Also the running statistics: those of the global batch."""
    losses, state, tested = trained(name, 1, 1, 1)
    others, same, again = trained(name, 2, 2, 2)
    np.testing.assert_allclose(others, losses, rtol=1e-5)
    np.testing.assert_allclose(again, tested, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        same.model_state,
        state.model_state,
    )
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(same.model_state))
    if name not in WHOLE:
        kernels = [x for x in jax.tree.leaves(same.params["blocks"]) if x.ndim > 2 and x.size > 64]
        assert not any(kernel.is_fully_replicated for kernel in kernels)
