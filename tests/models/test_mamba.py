"""State space layers: three forms of one sum, the reference's logits, causality, loops, dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax.models import Mamba, ssd
from mimetic_jax.models.mamba import DECAYS, STEPS
from mimetic_jax.schemes import MimeticSSM, mimetic_language
from tests.golden import mamba as reference
from tests.models.values import drawn, filled

KEY = jax.random.key(0)
MODEL = Mamba(**reference.FIELDS)
TOKENS = jnp.asarray(reference.tokens())


@pytest.fixture(scope="module")
def variables():
    """The weights of the golden arrays."""
    return filled(MODEL, TOKENS, reference.weight)


def logits(model, variables, tokens=TOKENS):
    return jax.jit(lambda v: model.apply(v, tokens, method="logits"))(variables)


def terms(length, groups=2, rate=1.0):
    """x, step, decay, b and c of 4 heads; the state keeps about exp(-rate) per token."""
    rng = np.random.default_rng(0)
    x, b, c = (rng.normal(size=(2, length, *s)) for s in ((4, 3), (groups, 5), (groups, 5)))
    step, decay = rng.uniform(0.1, 1, (2, length, 4)), -rate * rng.uniform(0.5, 2, 4)
    return [jnp.asarray(array, jnp.float32) for array in (x, step, decay, b, c)]


def recurrent(x, step, decay, b, c):
    """The recurrence token by token, its definition: a state of [S, P] numbers per head."""
    heads = x.shape[2] // b.shape[2]

    def advance(state, token):
        x_n, step_n, b_n, c_n = token
        b_n, c_n = b_n.repeat(heads, axis=1), c_n.repeat(heads, axis=1)
        written = jnp.einsum("bh,bhs,bhp->bhsp", step_n, b_n, x_n)
        state = jnp.exp(step_n * decay)[..., None, None] * state + written
        return state, jnp.einsum("bhs,bhsp->bhp", c_n, state)

    batch, _, num_heads, width = x.shape
    empty = jnp.zeros((batch, num_heads, b.shape[-1], width))
    tokens = jax.tree.map(lambda array: array.swapaxes(0, 1), (x, step, b, c))
    return jax.lax.scan(advance, empty, tokens)[1].swapaxes(0, 1)


@pytest.mark.parametrize(
    ("chunk", "length", "groups", "rate"),
    [(None, 23, 4, 0.01), (1, 24, 2, 1), (8, 23, 4, 0.01), (8, 24, 1, 3), (64, 24, 2, 1)],
)
def test_three_forms_of_one_sum(chunk, length, groups, rate):
    """And of its gradient."""

    def other(*terms):
        return ssd.chunked(*terms, chunk) if chunk else ssd.dual(*terms)

    def value_and_gradient(function):
        def total(terms):
            y = function(*terms)
            return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

        (_, y), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(
            terms(length, groups, rate)
        )
        return y, gradient

    found, expected = value_and_gradient(other), value_and_gradient(recurrent)
    for array, truth in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(array, truth, rtol=1e-5, atol=1e-5 * np.abs(truth).max())


def test_a_decay_that_forgets_at_once_has_finite_gradients():
    """Above the diagonal its exponential overflows."""
    x, step, decay, b, c = terms(40)
    for form in (ssd.dual, lambda *terms: ssd.chunked(*terms, 16)):
        gradient = jax.jit(jax.grad(lambda d, form=form: form(x, step, d, b, c).sum()))
        assert np.isfinite(gradient(1e4 * decay)).all()


@pytest.mark.parametrize("chunk", [256, 8])
def test_logits_of_the_reference(golden, variables, chunk):
    expected = golden("mamba")["logits"]
    found = logits(MODEL.clone(chunk=chunk), variables)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_initial_values_are_the_references():
    """Kernels within PyTorch's bounds, those of out_proj over √L; A, Δ and D in their ranges."""
    model = MODEL.clone(width=64, depth=4, heads=64, scan=True)
    blocks = jax.jit(model.init)(KEY, TOKENS)["params"]["blocks"]
    mixer = jax.tree.map(lambda leaf: leaf[1], blocks["mixer"])
    bounds = {"z": 64**-0.5, "dt": 64**-0.5, "out_proj": 128**-0.5 / 2, "conv": 0.5}
    for name, bound in bounds.items():
        assert bound * 0.95 < np.abs(mixer[name]["kernel"]).max() <= bound * 1.0001
    decay, step = np.exp(mixer["A_log"]), np.log1p(np.exp(mixer["dt_bias"]))
    assert (decay.min() >= DECAYS[0], decay.max() <= DECAYS[1]) == (True, True)
    assert decay.mean() == pytest.approx(8.5, abs=1.5)
    assert (step.min() > 0.99 * STEPS[0], step.max() < 1.01 * STEPS[1]) == (True, True)
    assert np.median(step) == pytest.approx(0.01, rel=0.6)
    assert (mixer["D"] == 1).all()


def test_a_hybrid_has_attention_in_the_layers_that_are_named(variables):
    """Its other layers are what they were; schemes for either kind find theirs."""
    hybrid = MODEL.clone(attention_layers=(1,))
    params = drawn(hybrid, TOKENS)
    assert [set(params[f"block_{layer}"]) for layer in (0, 1)] == [
        {"mixer", "norm"},
        {"attention", "norm"},
    ]
    schemes = (MimeticSSM(), mimetic_language())
    written = {write.path.split("/")[1] for write in mimetic_jax.plan(params, schemes)}
    assert written == {"mixer", "attention"}
    # A block of attention that adds nothing leaves the state space layer alone.
    silent = jax.tree.map(jnp.zeros_like, params["block_1"]["attention"])
    mixed = variables["params"] | {"block_1": params["block_1"] | {"attention": silent}}
    alone = MODEL.clone(depth=1)
    rest = {name: leaf for name, leaf in variables["params"].items() if name != "block_1"}
    np.testing.assert_allclose(
        logits(hybrid, {"params": mixed}), logits(alone, {"params": rest}), atol=1e-5
    )
