"""Mamba-2 trees of other programs, rewritten in one line and then read as those programs do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, plan, rewrite, zoo
from mimetic_jax.schemes import MimeticSSM
from tests.zoo.cases import nested

KEY = jax.random.key(3)
D, HEADS, WIDTH, GROUPS, S, LAYERS = 16, 4, 8, 2, 6, 2
INNER, STATES = HEADS * WIDTH, GROUPS * S
COLUMNS = np.cumsum([INNER, INNER, STATES, STATES])


def values(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {path: rng.normal(size=shape).astype(np.float32) for path, shape in shapes.items()}


def state_spaces() -> dict[str, Any]:
    """Of the module's `state_dict`, nested."""
    out = 2 * INNER + 2 * STATES + HEADS
    layer = {
        "mixer/in_proj/weight": (out, D),
        "mixer/conv1d/weight": (INNER + 2 * STATES, 1, 4),
        "mixer/conv1d/bias": (INNER + 2 * STATES,),
        "mixer/dt_bias": (HEADS,),
        "mixer/A_log": (HEADS,),
        "mixer/D": (HEADS,),
        "mixer/norm/weight": (INNER,),
        "mixer/out_proj/weight": (D, INNER),
        "norm/weight": (D,),
    }
    shapes = {f"backbone/layers/{i}/{n}": s for i in range(LAYERS) for n, s in layer.items()}
    return nested(
        values({"backbone/embedding/weight": (11, D), **shapes, "lm_head/weight": (11, D)})
    )


def bonsai() -> dict[str, Any]:
    """Of the NNX module's state: kernels the other way round, the filters one level down."""
    theirs = state_spaces()["backbone"]
    layers = {}
    for number, layer in theirs["layers"].items():
        mixer = dict(layer["mixer"])
        mixer["in_proj"] = {"kernel": mixer["in_proj"]["weight"].T}
        mixer["out_proj"] = {"kernel": mixer["out_proj"]["weight"].T}
        conv = mixer["conv1d"]
        mixer["conv1d"] = {"conv": {"kernel": conv["weight"].transpose(2, 1, 0), **conv}}
        del mixer["conv1d"]["conv"]["weight"]
        layers[number] = {"mixer": mixer, "norm": layer["norm"]}
    embedder = {"embedding": theirs["embedding"]["weight"]}
    return {"backbone": {"embedder": embedder, "layers": layers, "final_norm": {"weight": ONES}}}


ONES = np.ones(D, np.float32)


def read_state_spaces(mixer: Any, u: np.ndarray) -> list[np.ndarray]:
    """z, x, B, C, dt of nn.Linear; and what nn.Conv1d gives of the middle three."""
    projected = u @ mixer["in_proj"]["weight"].T
    filters = mixer["conv1d"]["weight"][:, 0].T
    return [projected, convolved(filters, mixer["conv1d"]["bias"], projected)]


def read_bonsai(mixer: Any, u: np.ndarray) -> list[np.ndarray]:
    """The same of nnx.Linear and nnx.Conv."""
    projected = u @ mixer["in_proj"]["kernel"]
    conv = mixer["conv1d"]["conv"]
    return [projected, convolved(conv["kernel"][:, 0], conv["bias"], projected)]


def convolved(filters: np.ndarray, bias: np.ndarray, projected: np.ndarray) -> np.ndarray:
    middle = projected[:, INNER:-HEADS]
    padded = np.pad(middle, ((3, 0), (0, 0)))
    return bias + sum(filters[tap] * padded[tap : tap + len(middle)] for tap in range(4))


CASES = {
    "STATE_SPACES_MAMBA2": (state_spaces, read_state_spaces),
    "BONSAI_MAMBA2": (bonsai, read_bonsai),
}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_reads_what_it_wrote(name):
    """C of a token is its B, the convolution changes nothing, and z, x and dt are as before."""
    make, read = CASES[name]
    before = make()
    assert zoo.detect(before) == name
    after = rewrite(KEY, before, MimeticSSM(noise=0.0), rules=zoo.TABLES[name])
    u = np.random.default_rng(1).normal(size=(7, D)).astype(np.float32)
    for layer in range(LAYERS):
        old, new = (params["backbone"]["layers"][str(layer)]["mixer"] for params in (before, after))
        (was, _), (projected, filtered) = read(old, u), read(new, u)
        z, x, b, c, dt = np.split(projected, COLUMNS, axis=1)
        np.testing.assert_allclose(c, b, rtol=1e-5)
        originals = np.split(was, COLUMNS, axis=1)
        for part, original in zip((z, x, b, dt), (*originals[:3], originals[4]), strict=True):
            np.testing.assert_allclose(part, original, rtol=1e-6)
        np.testing.assert_allclose(filtered, np.concatenate([x, b, c], axis=1), rtol=1e-5)
        np.testing.assert_allclose(np.exp(new["A_log"]), 1e-3, rtol=1e-5)
        np.testing.assert_allclose(np.log1p(np.exp(new["dt_bias"])), 1, rtol=1e-5)
        for leaf in ("D", "norm", "out_proj"):
            jax.tree.map(np.testing.assert_array_equal, old[leaf], new[leaf])


def test_a_tree_with_another_projection_is_an_error():
    """Without rules the table is found; another width fits no sum of parts."""
    params = bonsai()
    assert plan(params, MimeticSSM()).table == "BONSAI_MAMBA2"
    params["backbone"]["layers"]["0"]["mixer"]["in_proj"]["kernel"] = jnp.ones((D, 93))
    with pytest.raises(InputError, match=r"kernel has an axis of 93, which is not 2i\+2s\+m"):
        rewrite(KEY, params, MimeticSSM(), rules=zoo.BONSAI_MAMBA2)
