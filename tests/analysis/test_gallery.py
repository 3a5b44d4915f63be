from __future__ import annotations

import numpy as np
import pytest

from mimetic_jax.analysis import gallery, style


@pytest.fixture
def comparison(trained):
    return trained.comparison


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
