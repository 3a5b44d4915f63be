import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.weights.selection import select


def network(dim, layers=2):
    rng = np.random.default_rng(dim)
    tree = {f"layer_{i}/fc1/kernel": rng.normal(size=(dim, 4 * dim)) for i in range(layers)}
    tree |= {"multihead_attention/out/bias": rng.normal(size=dim)}
    return tree | {"scale": rng.normal(size=())}


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_every_leaf_is_selected(kind):
    teacher = {path: kind(array) for path, array in network(12, layers=3).items()}
    shapes = {path: array.shape for path, array in network(8).items()}
    chosen = select(teacher, shapes)
    rows = [0, 2, 3, 5, 6, 8, 9, 11]  # 11 i / 7, rounded
    columns = np.round(np.linspace(0, 47, 32)).astype(int)
    kernel = np.asarray(teacher["layer_1/fc1/kernel"])
    np.testing.assert_array_equal(chosen["layer_1/fc1/kernel"], kernel[rows][:, columns])
    np.testing.assert_array_equal(chosen["scale"], teacher["scale"])
    assert {path: array.shape for path, array in chosen.items()} == shapes
    assert chosen["scale"].dtype == teacher["scale"].dtype
