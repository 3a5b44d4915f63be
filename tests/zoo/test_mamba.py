"""Mamba-2 trees of other programs, rewritten in one line and then read as those programs do."""

import jax
import numpy as np
import pytest

from mimetic_jax import InputError, rewrite, zoo
from mimetic_jax.schemes import MimeticSSM
from tests.zoo.cases import leaves_of, nested

KEY = jax.random.key(3)
D, HEADS, WIDTH, GROUPS, S, LAYERS = 16, 4, 8, 2, 6, 2
INNER, STATES = HEADS * WIDTH, GROUPS * S
CHANNELS = INNER + 2 * STATES
COLUMNS = np.cumsum([INNER, INNER, STATES, STATES])
LAYER = "backbone/layers/{}/"
FORMS = {
    # The names of a weight and of the filters, and their axes as (in, out) and (tap, 1, channel).
    "STATE_SPACES_MAMBA2": ("weight", "conv1d", (1, 0), (2, 1, 0)),
    "BONSAI_MAMBA2": ("kernel", "conv1d/conv", (0, 1), (0, 1, 2)),
}


def tree(name):
    weight, conv, kernel, filters = FORMS[name]
    out = INNER + CHANNELS + HEADS
    layer = {
        f"mixer/in_proj/{weight}": np.array((D, out))[list(kernel)],
        f"mixer/out_proj/{weight}": np.array((INNER, D))[list(kernel)],
        f"mixer/{conv}/{weight}": np.array((4, 1, CHANNELS))[list(filters)],
        f"mixer/{conv}/bias": (CHANNELS,),
        "mixer/norm/weight": (INNER,),
        "norm/weight": (D,),
        **{f"mixer/{leaf}": (HEADS,) for leaf in ("dt_bias", "A_log", "D")},
    }
    shapes = {LAYER.format(i) + path: shape for path, shape in layer.items() for i in range(LAYERS)}
    random = np.random.default_rng(0)
    shapes |= {"backbone/embedding/weight": (11, D)}
    return nested({path: random.normal(size=s).astype(np.float32) for path, s in shapes.items()})


def read(leaves, layer, name, u):
    """z, x, B, C, dt of the linear layer; and what the convolution gives of the middle three."""
    weight, conv, kernel, filters = FORMS[name]
    mixer = f"{LAYER.format(layer)}mixer/"
    projected = u @ leaves[f"{mixer}in_proj/{weight}"].transpose(kernel)
    taps = leaves[f"{mixer}{conv}/{weight}"].transpose(filters)[:, 0]
    padded = np.pad(projected[:, INNER:-HEADS], ((3, 0), (0, 0)))
    filtered = sum(taps[tap] * padded[tap : tap + len(u)] for tap in range(4))
    return np.split(projected, COLUMNS, axis=1), filtered + leaves[f"{mixer}{conv}/bias"]


@pytest.mark.parametrize("name", FORMS)
def test_a_layer_reads_what_it_wrote(name):
    """C of a token is its B, the convolution changes nothing, and z, x and dt are as before."""
    params = tree(name)
    assert zoo.detect(params) == name
    before, after = leaves_of(params), leaves_of(rewrite(KEY, params, MimeticSSM(noise=0.0)))
    u = np.random.default_rng(1).normal(size=(7, D)).astype(np.float32)
    for layer in range(LAYERS):
        old, _ = read(before, layer, name, u)
        new, filtered = read(after, layer, name, u)
        np.testing.assert_allclose(new[3], new[2], rtol=1e-5)
        for part in (0, 1, 2, 4):
            np.testing.assert_allclose(new[part], old[part], rtol=1e-6)
        np.testing.assert_allclose(filtered, np.concatenate(new[1:4], axis=1), rtol=1e-5)
        mixer = f"{LAYER.format(layer)}mixer/"
        np.testing.assert_allclose(np.exp(after[f"{mixer}A_log"]), 1e-3, rtol=1e-5)
        np.testing.assert_allclose(np.log1p(np.exp(after[f"{mixer}dt_bias"])), 1, rtol=1e-5)
    changed = ("in_proj", "conv1d", "A_log", "dt_bias")
    for path, leaf in before.items():
        if not any(name in path for name in changed):
            np.testing.assert_array_equal(leaf, after[path], err_msg=path)


def test_a_tree_with_another_projection_is_an_error():
    params = tree("BONSAI_MAMBA2")
    params["backbone"]["layers"]["0"]["mixer"]["in_proj"]["kernel"] = np.ones((D, 93))
    with pytest.raises(InputError, match=r"kernel has an axis of 93, which is not 2i\+2s\+m"):
        rewrite(KEY, params, MimeticSSM())
