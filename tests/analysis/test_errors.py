"""What analyses refuse, each in one line."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.default import model
from mimetic_jax import InputError
from mimetic_jax.analysis import products
from mimetic_jax.analysis.attention import attention_maps
from mimetic_jax.analysis.offsets import by_offset
from mimetic_jax.analysis.rank import stable_ranks
from mimetic_jax.analysis.residual import channel_mixing_residuals
from mimetic_jax.models import Model
from tests.analysis.networks import drawn, small
from tests.training import quiet

IMAGES = jnp.zeros((1, 8, 8, 3))
MAPS = np.full((2, 13, 13), 1 / 13)
VIT = {"width": 8, "depth": 1, "heads": 2, "patch": 4}
MIXER = {"width": 8, "depth": 1, "patch": 4}


def of(analysis, name, **fields):
    return analysis(*drawn(name, IMAGES, **fields), IMAGES)


def analyzed(analysis, workdir, name, **fields):
    config = small()
    config.model = model(name, **fields)
    return analysis.analyze(quiet(config), workdir)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda _: of(channel_mixing_residuals, "vit", **VIT),
            "model vit has no blocks of depthwise and pointwise kernels",
        ),
        (
            lambda _: of(channel_mixing_residuals, "convnext", width=8, depth=1, patch=2),
            "model convnext has no blocks of depthwise and pointwise kernels",
        ),
        (lambda _: of(attention_maps, "mixer", **MIXER), "^model mixer has no attention layer"),
        (lambda path: analyzed(products, path, "mixer", **MIXER), "has no attention layer: there"),
        (lambda _: by_offset(MAPS, (4, 4)), "^maps of 13 tokens have no 4x4 grid$"),
    ],
)
def test_refused_in_one_line(call, words, tmp_path):
    with pytest.raises(InputError, match=words) as caught:
        call(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_model_without_blocks_has_no_ranks():
    tokens = jnp.ones((1, 4))
    dense = Model.of("flax.linen:Dense", {"features": 3})
    variables, _ = dense.init(jax.random.key(0), tokens)
    with pytest.raises(InputError, match=r"^model flax\.linen:Dense has no blocks"):
        stable_ranks(dense, variables, tokens)
