"""Arms and their groups: what `init` of a configuration chooses."""

import json

import jax
import jax.numpy as jnp
import pytest

import mimetic_jax
from configs import arms
from mimetic_jax import models, schemes
from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes import Mimetic

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
