from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.default import default
from mimetic_jax.analysis import gallery, products
from mimetic_jax.schemes import Mimetic, SinCos
from mimetic_jax.train.compare import Comparison


@pytest.fixture(scope="module")
def comparison():
    config = default()
    config.batch, config.steps = 32, 4
    config.model.update(width=48, depth=2, heads=2, patch=2)
    config.eval.batch = 72
    config.arms.default = {"scheme": ()}
    config.arms.mimetic = {"scheme": (SinCos(), Mimetic())}
    return Comparison(config, say=lambda line: None)


def initial(comparison, arm):
    return comparison.arms[arm].program.initial_state(0, comparison.arms[arm].config.scheme).params


def test_attention_map_is_the_models(comparison):
    """Against attention by hand, from the parameters."""
    params = initial(comparison, "mimetic")
    task = comparison.arms["mimetic"].program.task
    images = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
    got = gallery.attention_map(task, params, task.view(jnp.asarray(images)))
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-5)
    pixels = (images / 255 - task.info.mean[0]) / task.info.std[0]
    patches = pixels.reshape(4, 2, 4, 2).transpose(0, 2, 1, 3).reshape(16, 4)
    embedded = patches @ params["patch_embed"]["kernel"] + params["patch_embed"]["bias"]
    tokens = np.concatenate([params["cls_token"][0], embedded]) + params["pos_embed"][0]
    centered = tokens - tokens.mean(-1, keepdims=True)
    normed = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
    layer = params["block_0"]["attention"]
    logits = (normed @ layer["query"]["kernel"][:, 0]) @ (normed @ layer["key"]["kernel"][:, 0]).T
    np.testing.assert_allclose(got, jax.nn.softmax(logits / 24**0.5, axis=-1), atol=1e-4)


def test_picture_is_drawn(comparison, tmp_path):
    pytest.importorskip("matplotlib")
    said = gallery.draw(comparison, tmp_path / "new" / "schemes.png")
    assert "2 schemes drawn" in said
    assert (tmp_path / "new" / "schemes.png").read_bytes().startswith(b"\x89PNG")


def test_leans(comparison):
    for arm, query_key, value_out in (("default", 0, 0), ("mimetic", 0.395, -0.4)):
        layers = products.leans(initial(comparison, arm))
        assert [lean.layer for lean in layers] == ["block_0/attention", "block_1/attention"]
        for lean in layers:
            assert lean.query_key == pytest.approx(query_key, abs=0.15)
            assert lean.value_out == pytest.approx(value_out, abs=0.1)


def test_analyze_tells_before_and_after(comparison, tmp_path):
    before = products.analyze(comparison, tmp_path)
    assert "mimetic seed 0, initial" in before
    assert "step 4" not in before
    comparison.train(tmp_path)
    assert "mimetic seed 0, step 4" in products.analyze(comparison, tmp_path)
