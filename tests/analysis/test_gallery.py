from __future__ import annotations

import numpy as np
import pytest

from configs.default import default, model
from mimetic_jax.analysis import gallery, products, style
from mimetic_jax.errors import InputError
from tests.training import quiet


@pytest.fixture
def comparison(trained):
    return trained.comparison


def initial(comparison, arm):
    return comparison.arms[arm].program.initial_state(0, comparison.arms[arm].config.scheme).params


def test_picture_is_drawn(comparison, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    figures, save = [], style.save
    monkeypatch.setattr(
        style, "save", lambda figure, path: (figures.append(figure), save(figure, path))
    )
    said = gallery.analyze(comparison, tmp_path / "new")
    assert "2 schemes drawn" in said
    assert (tmp_path / "new" / "schemes.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = figures
    assert figure.get_suptitle() == "vit on digits, seed 0, initialized"
    (example, *_), default, mimetic = np.array(figure.axes[:12]).reshape(3, 4)
    expected = comparison.arms["default"].source.dataset.test_images[0, ..., 0]
    np.testing.assert_array_equal(example.images[0].get_array(), expected)
    for above, below in zip(default, mimetic, strict=True):  # one scale for all arms
        assert above.images[0].get_clim() == below.images[0].get_clim()
        assert below.get_ylabel()
        assert below.get_xlabel()
    assert default[2].images[0].get_clim() == default[3].images[0].get_clim()
    assert default[0].images[0].get_clim()[1] > 0.3  # of mimetic's diagonal
    assert [row[0].get_ylabel().split()[0] for row in (default, mimetic)] == ["default", "mimetic"]
    assert {"W_V W_out", "attention, head 0"} < {bar.get_xlabel() for bar in figure.axes[12:]}


def test_products_are_those_of_the_first_attention_layer():
    draw = np.random.default_rng(0).standard_normal
    shapes = {"query": (2, 8, 4, 2), "key": (2, 8, 2, 2), "value": (2, 8, 2, 2)}
    shapes["out"] = (2, 4, 2, 8)
    kernels = {role: draw(shape, np.float32) for role, shape in shapes.items()}
    tree = {"blocks": {"attention": {role: {"kernel": k} for role, k in kernels.items()}}}
    query_key, value_out = gallery.products({"dense": {"kernel": np.ones((3, 3))}, **tree})
    query, key, value, out = (kernel[0] for kernel in kernels.values())
    np.testing.assert_allclose(query_key, query[:, 0] @ key[:, 0].T, rtol=1e-5)
    by_hand = sum(value[:, h // 2] @ out[h] for h in range(4))
    np.testing.assert_allclose(value_out, by_hand, rtol=1e-5, atol=1e-5)
    assert gallery.products({"fc1": {"kernel": np.ones((3, 3))}}) is None


@pytest.mark.parametrize(
    ("count", "grid", "shape", "middle"),
    [(17, (4, 4), (4, 4), 11), (9, (6, 6), (3, 3), 4), (7, None, (1, 7), 3)],
    ids=("class token", "window", "text"),
)
def test_the_middle_token_looks(count, grid, shape, middle):
    looks = gallery._looks(np.arange(count**2).reshape(count, count), grid)
    front = count - np.prod(shape)
    assert looks.shape == shape
    assert looks.ravel()[0] == middle * count + front


def test_nothing_to_draw_is_one_line(tmp_path):
    config = default()
    config.batch, config.steps, config.eval.batch = 32, 4, 72
    config.model = model("mixer", width=8, depth=1, patch=4)
    mixer = quiet(config)
    with pytest.raises(InputError, match=r"^model mixer has no attention to draw$"):
        gallery.analyze(mixer, tmp_path)


def test_leans(comparison):
    for arm, query_key, value_out in (("default", 0, 0), ("mimetic", 0.395, -0.4)):
        layers = products.leans(initial(comparison, arm))
        assert [lean.layer for lean in layers] == ["block_0/attention", "block_1/attention"]
        for lean in layers:
            assert lean.query_key == pytest.approx(query_key, abs=0.15)
            assert lean.value_out == pytest.approx(value_out, abs=0.1)
