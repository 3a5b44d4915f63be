"""What a message suggests is run here: each suggestion is read from the message itself."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, rewrite, schemes, weights
from mimetic_jax.schemes import CorrelatedMLP, Mimetic, NormMatched, SinCos

KEY = jax.random.key(0)
NAMES = vars(schemes) | {"weights": weights}


def suggested(pattern: str, call) -> str:
    """The first part of the message of a call that matches."""
    with pytest.raises(InputError) as caught:
        call()
    found = re.search(pattern, str(caught.value))
    assert found, caught.value
    return found[0]


def test_positions_of_patches_or_text():
    params = {"pos_embed": jnp.ones((1, 16, 8))}
    grid = suggested(r"(?<=grid=)\(\d+, \d+\)", lambda: rewrite(KEY, params, SinCos()))
    on_grid = rewrite(KEY, params, SinCos(), grid=eval(grid))
    line = suggested(r"SinCos\(axes=1\)", lambda: rewrite(KEY, params, SinCos()))
    as_text = rewrite(KEY, params, eval(line, NAMES))
    assert not np.array_equal(on_grid["pos_embed"], as_text["pos_embed"])


def test_channel_first_images():
    images = np.random.default_rng(0).normal(size=(4, 3, 32, 32))
    call = suggested(r"images\.transpose\([^)]*\)", lambda: weights.patch_covariance(images, 4))
    assert weights.patch_covariance(eval(call, {"images": images}), 4).shape == (48, 48)


def test_counts_of_another_vocabulary():
    params = {"embed": {"embedding": jnp.ones((12, 8))}}
    scheme, tokens = schemes.Cooccurrence(), [0, 1, 2, 3, 4, 0, 2]
    counts = weights.cooccurrence(tokens, 5)
    call = suggested(
        r"cooccurrence\(tokens, vocab=\d+\)",
        lambda: rewrite(KEY, params, scheme, counts=counts),
    )
    counts = eval(call, {"tokens": tokens, "cooccurrence": weights.cooccurrence})
    rewrite(KEY, params, scheme, counts=counts)


def test_a_correlation_with_zeros():
    kernels = {"fc1": {"kernel": jnp.eye(8, 16)}, "fc2": {"kernel": jnp.zeros((16, 8))}}
    after = suggested(
        r"(?<=Apply it before )\S+(?=\.)", lambda: rewrite(KEY, {"mlp": kernels}, CorrelatedMLP())
    )
    kernels["fc2"]["kernel"] = jnp.eye(16, 8)
    drawn = rewrite(KEY, {"mlp": kernels}, CorrelatedMLP())
    assert not jnp.any(rewrite(KEY, drawn, eval(after, NAMES))["mlp"]["fc2"]["kernel"])


def test_a_class_in_the_place_of_a_scheme():
    call = suggested(r"Mimetic\(\)", lambda: NormMatched(Mimetic))
    assert NormMatched(eval(call, NAMES)) == NormMatched(Mimetic())


def test_a_field_with_a_slip():
    name = suggested(r"(?<=did you mean ')\w+", lambda: Mimetic(beta_q=1))
    assert Mimetic(**{name: 1}).beta_qk == 1
