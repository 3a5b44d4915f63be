import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.linen import MultiHeadDotProductAttention
from mimetic_jax.schemes import Layers, Mimetic, NormMatched, Permuted, SinCos

X = np.random.default_rng(1).normal(size=(2, 5, 16)).astype(np.float32)
KEY = jax.random.key(0)


def mimetic(**options):
    return MultiHeadDotProductAttention(num_heads=2, attention_init=Mimetic(), **options)


def alignment(params):
    return float(np.einsum("dhk,hkd->d", params["value"]["kernel"], params["out"]["kernel"]).mean())


def test_tree_is_the_stock_layers():
    ours = jax.eval_shape(mimetic().init, KEY, X)
    theirs = jax.eval_shape(nn.MultiHeadDotProductAttention(num_heads=2).init, KEY, X)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert jax.tree.map(jnp.shape, ours) == jax.tree.map(jnp.shape, theirs)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_output_is_that_of_the_new_weights(transform):
    layer = mimetic()
    output, variables = transform(layer.init_with_output)(KEY, X)
    assert alignment(variables["params"]) == pytest.approx(-0.4, abs=0.1)
    np.testing.assert_allclose(output, layer.apply(variables, X), atol=1e-6)


def test_parameters_that_apply_makes():
    """Linen makes them wherever their collection is mutable and empty."""
    _, made = mimetic().apply({}, X, rngs={"params": KEY}, mutable=True)
    jax.tree.map(np.testing.assert_array_equal, made["params"], mimetic().init(KEY, X)["params"])


def test_untouched_leaves_are_the_stock_draw():
    only = Mimetic(alpha_qk=None, beta_qk=None)
    ours = MultiHeadDotProductAttention(num_heads=2, attention_init=only).init(KEY, X)["params"]
    theirs = nn.MultiHeadDotProductAttention(num_heads=2).init(KEY, X)["params"]
    np.testing.assert_array_equal(ours["query"]["kernel"], theirs["query"]["kernel"])
    stock = MultiHeadDotProductAttention(num_heads=2).init(KEY, X)["params"]
    jax.tree.map(np.testing.assert_array_equal, stock, theirs)


def test_a_control_in_the_place_of_its_scheme():
    """The joint draw of the layer without the control, its channels in another order."""
    drawn, permuted = (
        MultiHeadDotProductAttention(num_heads=2, attention_init=scheme).init(KEY, X)["params"]
        for scheme in (Mimetic(), Permuted(Mimetic()))
    )
    np.testing.assert_array_equal(permuted["query"]["kernel"], drawn["query"]["kernel"])
    ours, theirs = (tree["key"]["kernel"] for tree in (permuted, drawn))
    assert (ours != theirs).any()
    np.testing.assert_array_equal(np.sort(ours, axis=0), np.sort(theirs, axis=0))
    assert abs(alignment(permuted)) < 0.2 < -alignment(drawn)


class Residual(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return x + mimetic(name="attention")(x), None


def test_scan_and_remat():
    layers = nn.scan(
        nn.remat(Residual), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
    )()
    (output, _), variables = layers.init_with_output(KEY, X, None)
    params = variables["params"]["attention"]
    for layer in range(3):
        one = jax.tree.map(lambda x, layer=layer: x[layer], params)
        assert alignment(one) == pytest.approx(-0.4, abs=0.1)
    np.testing.assert_allclose(output, layers.apply(variables, X, None)[0], atol=1e-6)


class Shared(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = mimetic(
            kernel_init=nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
        )
        return layer(layer(x))


def test_shared_layer_and_boxed_parameters():
    """A layer called twice draws once; boxes keep their names."""
    output, variables = Shared().init_with_output(KEY, X)
    kernel = variables["params"]["MultiHeadDotProductAttention_0"]["query"]["kernel"]
    assert isinstance(kernel, nn.Partitioned)
    assert kernel.names == (None, "model")
    np.testing.assert_allclose(output, Shared().apply(variables, X), atol=1e-6)


def test_dropout_and_decode():
    layer = mimetic(dropout_rate=0.5, deterministic=False)
    variables = layer.init({"params": KEY, "dropout": KEY}, X)
    assert alignment(variables["params"]) == pytest.approx(-0.4, abs=0.1)
    variables = mimetic(decode=True).init(KEY, X)
    assert int(variables["cache"]["cache_index"]) == 0
    assert alignment(variables["params"]) == pytest.approx(-0.4, abs=0.1)


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        (Mimetic(beta_vo=lambda depth: 0.8 * depth - 0.4), "Mimetic.beta_vo"),
        (NormMatched(Mimetic(alpha_qk=(0.7, 0.5, 0.3))), "Mimetic.alpha_qk"),
        ((SinCos(), Layers(Mimetic(), 2 / 3, 1)), "Layers"),
    ],
)
def test_what_depends_on_depth_is_refused(scheme, name):
    """A layer would take itself for the first of one."""
    layer = MultiHeadDotProductAttention(num_heads=2, attention_init=scheme)
    with pytest.raises(InputError, match=rf"^{name} depends on the layer's depth.*rewrite"):
        jax.eval_shape(layer.init, KEY, X)
