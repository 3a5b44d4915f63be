"""Arms, their groups and their controls: what `init` of a configuration chooses."""

import dataclasses
import importlib
import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import mimetic_jax
from configs import arms, neighbors_vit
from launch.runner import load
from mimetic_jax import models, schemes, weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.command import shipped
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Mimetic, as_tuple
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.record import CONTROLS, SCATTERED
from papers import TABLES, rows_of
from papers.record import Row
from tests import words

DEPTH = 3
VISION, GROUPS = arms.vision(), arms.figures(1.0)


@pytest.fixture(scope="module")
def trees():
    """Shapes of the parameters of a ViT with a class token, and of a GPT."""
    vit = models.ViT(num_classes=10, width=24, depth=DEPTH, heads=3, patch=4)
    gpt = models.GPT(vocab=11, width=24, depth=DEPTH, heads=3)
    key = jax.random.key(0)
    return {
        "vit": jax.eval_shape(vit.init, key, jnp.ones((1, 16, 16, 3)))["params"],
        "gpt": jax.eval_shape(gpt.init, key, jnp.ones((1, 8), jnp.int32))["params"],
    }


@pytest.mark.parametrize(
    ("kind", "groups", "tree"),
    [(VISION, GROUPS, "vit"), (arms.structured(), {}, "vit"), (arms.language(), {}, "gpt")],
    ids=["vision", "structured", "language"],
)
def test_every_arm_applies_and_can_be_stored(trees, kind, groups, tree):
    """And so do their controls, and those of groups."""
    planned = set()
    for name, arm in arms.chosen(("all", *groups), kind, groups=groups).items():
        for scheme in arm.get("scheme", ()):
            stored = json.loads(json.dumps(schemes.to_dict(scheme)))
            assert schemes.from_dict(stored) == scheme, name
            for layer in range(DEPTH):
                scheme.at(layer, DEPTH)
        kinds = tuple(map(type, arm.get("scheme", ())))
        if kinds and kinds not in planned:
            planned.add(kinds)
            assert mimetic_jax.plan(trees[tree], arm["scheme"]), name


def test_groups_are_no_arms_and_have_arms_of_their_own_name():
    assert not GROUPS.keys() & VISION.keys()
    assert not any(group.keys() & VISION.keys() for group in GROUPS.values())


def test_init_names_arms_and_groups():
    def names(init: str) -> list[str]:
        return list(arms.chosen(tuple(init.split("+")), VISION, arms.VISION, GROUPS))

    assert names("all") == ["default", "sincos", "norm_matched_mimetic", "mimetic"]
    assert names("positive+norm_matched_positive") == ["positive", "norm_matched_positive"]
    assert names("figure4+default+mimetic")[-3:] == ["scale_400", "default", "mimetic"]
    with pytest.raises(InputError, match=r"unknown init 'figrue6'.* did you mean 'figure6'"):
        names("mimetic+figrue6")
    with pytest.raises(InputError, match="unknown init ''"):
        names("mimetic+")
    for without_structure in ("sincos", "norm_matched_mimetic", "pretrained"):
        for control in ("norm_matched", "permuted"):
            with pytest.raises(InputError, match="unknown init"):
                names(f"{control}_{without_structure}")


def test_the_control_of_alignment_of_any_arm():
    """The arm with its own fields and positions; what has no alignment stays."""
    every = arms.mlp(24, "torch")
    found = arms.chosen(("permuted_mimetic_mean_shift", "permuted_mimetic"), every)
    positions, mimetic, shift = schemes.SinCos(), Mimetic(), schemes.MeanShift(arms.B)
    permuted = schemes.Permuted(mimetic)
    assert found["permuted_mimetic"].scheme == (positions, permuted)
    assert found["permuted_mimetic_mean_shift"].scheme == (positions, permuted, shift)
    with pytest.raises(InputError, match="unknown init 'permuted_mean_shift'"):
        arms.chosen(("permuted_mean_shift",), every)
    assert not any(name.startswith("permuted_") for name in arms.chosen(("all",), every))


def test_impulses_are_compared_with_scattered_ones():
    """Whether named or not, where the arm has impulses; those of a Swin's biases are no such."""
    every = arms.structured()
    found = arms.chosen(("all",), every, ("default", "impulse", "positive_filters"))
    assert list(found) == ["default", "impulse", "positive_filters", "scattered_impulse"]
    (impulse,), (scattered,) = (found[f"{kind}impulse"].scheme for kind in ("", "scattered_"))
    assert scattered == dataclasses.replace(impulse, order="scattered")
    for arm in ("positive_filters", "mimetic", "default"):
        with pytest.raises(InputError, match=f"unknown init 'scattered_{arm}'"):
            arms.chosen((f"scattered_{arm}",), every)
    swin = arms.structured(schemes.ImpulseBias())
    assert "scattered_impulse" not in arms.chosen(("all",), swin, ("default", "impulse"))


def test_arms_of_the_papers_rows():
    started = arms.vision(1.0, "vit.safetensors")["pretrained"]
    assert started == {"init_from": "vit.safetensors", "init_parts": ("attention", "position")}
    only_query_key = VISION["query_key"][-1]
    assert (only_query_key.alpha_qk, only_query_key.alpha_vo) == (0.7, None)
    assert VISION["positive"][-1] == Mimetic(beta_vo=0.4)
    assert len(GROUPS["figure10"]) == 70
    assert GROUPS["figure10"]["vo_40_20"][-1] == Mimetic(0.6, 0.3, 0.4, -0.2)
    assert GROUPS["figure10"]["qk_20_80"][-1] == Mimetic(0.2, 0.8)


def test_released_arms_leave_biases(trees):
    for name, arm in arms.chosen(("all",), arms.structured(), arms.STRUCTURED).items():
        if "scheme" in arm:
            written = mimetic_jax.plan(trees["vit"], arm["scheme"])
            assert not any(write.role.endswith("_bias") for write in written), name


OTHERS = ("images", "text")
"""Of data of one's own."""

WITHOUT_STRUCTURE = ("random", "frame")
"""Arms whose scheme draws independent entries, though schemes of its class may have structure; and
what others are compared with."""


def rows() -> Iterator[Any]:
    """The comparison of every shipped file, and those of the rows of papers."""
    for name in shipped.names():
        if name not in OTHERS:
            module = importlib.import_module(f"configs.{name}")
            yield pytest.param(Row(name, config=module), id=name)
    seen = set()
    for name in TABLES:
        for row in rows_of(name):
            size = str(row.arguments) if row.ladder else ""
            if not row.needs and not row.is_untrained and (row.config, size, row.arms) not in seen:
                seen.add((row.config, size, row.arms))  # other sizes and rates: the same schemes
                yield pytest.param(row, id=f"{name} {row.place.number}", marks=pytest.mark.slow)


@pytest.mark.parametrize("row", list(rows()))
def test_a_control_has_the_norms_of_its_arm(row, tmp_path):
    """And where they differ it is noise, not the same numbers."""
    config = small(load(row))
    if config.data.name.startswith("text_"):
        config.data.dir = words.numbered(tmp_path / "text.txt", 100_000)
    comparison = Comparison(config, say=lambda _: None)
    pairs = [
        (name, f"{before}{name}")
        for name in config.arms
        for before in CONTROLS.values()
        if f"{before}{name}" in config.arms
        and "scheme" in config.arms[name]
        # Where rows attend to as many tokens instead.
        and (row.config, before) != (neighbors_vit, CONTROLS[SCATTERED])
    ]
    arrays = {arm: written(comparison, arm) for pair in pairs for arm in pair}
    for name, control in pairs:
        ours, noise = arrays[name], arrays[control]
        differs = False
        for path, kernel in ours.items():
            norms = [float(np.linalg.norm(array)) for array in (kernel, noise[path])]
            np.testing.assert_allclose(*norms, rtol=1e-4, err_msg=f"{name}: {path}")
            differs |= not np.array_equal(kernel, noise[path])
        assert differs, f"{control} has no noise where {name} has structure"
    for name, arm in config.arms.items():
        structure = "scheme" in arm and arms.noise(arm)["scheme"] != tuple(arm["scheme"])
        structure &= not name.startswith(tuple(CONTROLS.values()))
        if structure and not row.arms and name not in WITHOUT_STRUCTURE:
            assert name in dict(pairs), f"{row.label} compares {name} with the default alone"


def small(config: ConfigDict) -> ConfigDict:
    """Of a narrow model, two layers deep."""
    width = 16 if "depths" in config.model else 48  # which a Swin doubles in each stage
    sizes = {"width": width, "depth": 2, "depths": (2, 2, 2, 2), "heads": 2, "head_dim": 16}
    for field, value in sizes.items():
        if field in config.model:
            config.model[field] = value
    return config


def written(comparison: Comparison, arm: str) -> dict[str, np.ndarray]:
    """The leaves of an arm's parameters, which were the same for all before its scheme."""
    of_arm = comparison.arms[arm]
    program, generator = of_arm.program, np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: generator.normal(size=leaf.shape).astype(leaf.dtype), program.shapes.params
    )
    scheme = tuple(of_arm.config.scheme)
    if scheme:
        key = jax.random.key(0)
        options = program.options_for(scheme, **program.task.data_statistics(scheme))
        if "counts" in options:  # of another text, which needs no download
            vocab = options["counts"].shape[0]
            text = generator.integers(min(vocab, 500), size=5000)
            options["counts"] = weights.cooccurrence(text, vocab)
        params = mimetic_jax.rewrite(key, params, scheme, **options)
    return {path: np.asarray(leaf) for path, leaf in paths.flatten(params)[0]}


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_images_of_ones_own_are_compared_by_what_suits_what_is_read(pool):
    """Without the note about class tokens that attention leaves out."""
    config = shipped.load(f"images:pool={pool},width=16,depth=1,heads=2")
    assert config.model.pool == pool
    model = models.ViT(num_classes=3, width=16, depth=1, heads=2, patch=8, pool=pool)
    params = model.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))["params"]
    assert len(config.arms) == 3
    for name, arm in config.arms.items():
        notes = mimetic_jax.plan(params, as_tuple(arm["scheme"])).notes
        assert not any("start near 0" in note for note in notes), name
    with pytest.raises(InputError, match="unknown pool 'tokens'; did you mean 'token'"):
        shipped.load("images:pool=tokens")
