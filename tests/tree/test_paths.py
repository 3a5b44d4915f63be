from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from mimetic_jax.tree import paths


def test_names_go_through_boxes_lists_and_dictionaries():
    boxed = nn.Partitioned(jnp.ones(2), names=("model",))
    named, treedef = paths.flatten({"blocks": [{"kernel": boxed}, {"kernel": jnp.ones(3)}]})
    assert [path for path, _ in named] == ["blocks/0/kernel", "blocks/1/kernel"]
    assert jax.tree.unflatten(treedef, [leaf for _, leaf in named])["blocks"][0]["kernel"].names


class Kernels(NamedTuple):
    key: object
    value: object


def test_only_boxes_hide_the_name_of_their_value():
    array = jnp.ones(2)
    boxes = nn.Partitioned(array, names=("model",)), nnx.Param(array)
    for leaf in (array, *boxes):
        named, _ = paths.flatten({"attn": Kernels(leaf, leaf)})
        assert [path for path, _ in named] == ["attn/key", "attn/value"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("head/kernel", 1), ("head/bias", 2), ("block_0/kernel", 3), ("block_0/scale", 0)],
)
def test_first_match_wins(path, expected):
    rules = [(r"^head/kernel$", 1), (r"bias$", 2), (r"kernel", 3)]
    assert paths.first_match(rules, path, 0) == expected


def test_the_root_is_no_layer():
    assert paths.family("") == ""
    assert paths.family("0") == paths.family("11") != ""
