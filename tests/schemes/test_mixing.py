import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, rewrite
from mimetic_jax.models import Mixer
from mimetic_jax.schemes import Context, ImpulseMixing
from mimetic_jax.tree.rewrite import blocks
from tests.models.values import drawn
from tests.schemes.blocks import ones

KEY = jax.random.key(0)
ROWS, COLUMNS = 5, 4
COUNT = ROWS * COLUMNS
EXACT = ImpulseMixing(noise=0.0)


def written(scheme, scan=False):
    """The new token_in [N, F] and token_out [F, N] of each layer of a Mixer."""
    model = Mixer(num_classes=3, width=12, depth=2, patch=2, scan=scan)
    params = drawn(model, jnp.ones((1, 2 * ROWS, 2 * COLUMNS, 3)))
    new = rewrite(KEY, params, scheme, grid=(ROWS, COLUMNS))
    mixing = [block for _, _, block in blocks(new) if "token_in" in block]
    return [(np.asarray(block["token_in"]), np.asarray(block["token_out"])) for block in mixing]


def offset_of(shift):
    """The only (row, column) offset of a matrix that is a multiple of a shift; token i to j."""
    source, target = shift.nonzero()
    rows, columns = np.divmod(source, COLUMNS)
    to_rows, to_columns = np.divmod(target, COLUMNS)
    found = set(zip((to_rows - rows).tolist(), (to_columns - columns).tolist(), strict=True))
    assert len(found) == 1
    (offset,) = found
    row, column = offset
    assert len(source) == (ROWS - abs(row)) * (COLUMNS - abs(column))  # of every token inside
    return offset


@pytest.mark.parametrize("scan", [False, True])
def test_the_product_is_a_mean_of_shifts(scan):
    layers = written(EXACT, scan)
    assert len(layers) == 2
    offsets = []
    for token_in, token_out in layers:
        groups = token_in.reshape(COUNT, 4, COUNT).swapaxes(0, 1)
        collect = token_out.reshape(4, COUNT, COUNT)
        np.testing.assert_allclose(collect, collect[0, 0, 0] * np.eye(COUNT)[None].repeat(4, 0))
        # A row vector of tokens: row i of the kernel is where token i goes to.
        products = groups @ collect
        values = products[products != 0]
        assert values.min() > 0
        np.testing.assert_allclose(values, values[0], rtol=1e-6)
        offsets.append([offset_of(product) for product in products])
        assert len(set(offsets[-1])) == 4
        assert np.abs(offsets[-1]).max() <= 1
        total = token_in @ token_out
        np.testing.assert_allclose(total, products.sum(0), rtol=1e-6)
    assert offsets[0] != offsets[1]


def test_noise_is_added_and_norms_are_those_of_pytorch():
    (plain_in, plain_out), _ = written(EXACT)
    (noisy_in, noisy_out), _ = written(ImpulseMixing(noise=0.1))
    for plain, noisy, fan_in in ((plain_in, noisy_in, COUNT), (plain_out, noisy_out, 4 * COUNT)):
        default = (plain.size / (3 * fan_in)) ** 0.5
        assert np.linalg.norm(plain) == pytest.approx(default, rel=1e-5)
        noise = noisy - plain
        assert np.abs(noise).max() <= 0.1 * fan_in**-0.5 + 1e-7
        assert np.linalg.norm(noise) == pytest.approx(0.1 * default, rel=0.1)


def test_a_square_of_tokens_needs_no_grid():
    block = ones({"token_in": (16, 64), "token_out": (64, 16)})
    found, given = (EXACT(KEY, block, Context(grid=grid)) for grid in (None, (4, 4)))
    jax.tree.map(np.testing.assert_array_equal, found, given)


@pytest.mark.parametrize(
    ("token_in", "token_out", "grid", "words"),
    [
        ((20, 80), (80, 20), (4, 4), r"token_in \(20, 80\) mixes 20 tokens, which are not"),
        ((20, 80), (80, 20), None, r"which are not a grid of 4x4; pass grid=\(h, w\)"),
        ((9, 22), (22, 9), None, "width 22 is not a multiple of the 9 tokens"),
        ((20, 80), (80, 8), None, r"token_out \(80, 8\) are not \[N, F\] and \[F, N\]"),
    ],
)
def test_bad_input(token_in, token_out, grid, words):
    with pytest.raises(InputError, match=words):
        EXACT(KEY, ones({"token_in": token_in, "token_out": token_out}), Context(grid=grid))
