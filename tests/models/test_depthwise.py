import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate2d

from mimetic_jax.base.errors import InputError
from mimetic_jax.models import depthwise
from mimetic_jax.models.depthwise import Depthwise, depthwise_conv


def _case(height, width, size, channels=3, batch=2):
    x = jax.random.normal(jax.random.key(0), (batch, height, width, channels))
    kernel = jax.random.normal(jax.random.key(1), (size, size, channels))
    return x, kernel


@pytest.mark.parametrize(
    ("height", "width", "size"), [(8, 8, 3), (8, 8, 7), (8, 8, 8), (6, 9, 5), (2, 3, 8), (4, 4, 1)]
)
def test_it_is_scipys_correlation_of_each_channel(height, width, size):
    x, kernel = _case(height, width, size)
    before, after = (size - 1) // 2, size // 2
    padded = np.pad(np.asarray(x, np.float64), [(0, 0), (before, after), (before, after), (0, 0)])
    expected = [
        [
            correlate2d(image[..., c], np.asarray(kernel, np.float64)[..., c], "valid")
            for c in (0, 1, 2)
        ]
        for image in padded
    ]
    got = jax.jit(depthwise_conv)(x, kernel)
    np.testing.assert_allclose(got, np.moveaxis(expected, 1, -1), atol=1e-5)


@pytest.mark.parametrize("size", [3, 5, 7, 8])
def test_all_forms_and_their_gradients_agree(size):
    x, kernel = _case(8, 8, size)

    def loss(form):
        return lambda x, kernel: jnp.sin(form(x, kernel)).sum()

    *ours, theirs = (
        jax.jit(jax.grad(loss(form), argnums=(0, 1)))(x, kernel)
        for form in (depthwise._of_pixels, depthwise._of_rows, depthwise._grouped)
    )
    for got, expected in zip(ours[0] + ours[1], theirs + theirs, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("platform", "convolves"), [("cpu", False), ("cuda", True), ("tpu", True)])
def test_each_platform_gets_its_own_form(platform, convolves):
    program = jax.jit(depthwise_conv).trace(*_case(8, 8, 3)).lower(lowering_platforms=(platform,))
    assert ("stablehlo.convolution" in program.as_text()) is convolves


def test_members_of_a_population_are_as_one_by_one():
    x, kernel = _case(8, 8, 3)
    kernels = jnp.stack([kernel, 2 * kernel])
    together = jax.jit(jax.vmap(depthwise_conv, in_axes=(None, 0)))(x, kernels)
    np.testing.assert_allclose(together[1], 2 * depthwise_conv(x, kernel), atol=1e-5)


def test_the_layer_has_the_parameters_of_flaxs_own_and_computes_in_its_dtype():
    layer = Depthwise(size=5, dtype=jnp.bfloat16)
    variables = layer.init(jax.random.key(0), jnp.ones((1, 8, 8, 4)))
    shapes = {name: leaf.shape for name, leaf in variables["params"].items()}
    assert shapes == {"kernel": (5, 5, 1, 4), "bias": (4,)}
    assert layer.apply(variables, jnp.ones((1, 8, 8, 4))).dtype == jnp.bfloat16


def test_filters_that_fit_no_input_are_refused():
    x, kernel = _case(8, 8, 3)
    with pytest.raises(InputError, match=r"\(3, 3, 3\) are not \[k, k, 2\].* 2 channels"):
        depthwise_conv(x[..., :2], kernel)
    with pytest.raises(InputError, match=r"\(2, 3, 3\) are not"):
        depthwise_conv(x, kernel[:2])
    with pytest.raises(InputError, match="filter size 0"):
        Depthwise(size=0).init(jax.random.key(0), x)
