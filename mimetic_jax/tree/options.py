"""The keywords that all doors to a tree share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from mimetic_jax.base.errors import unknown
from mimetic_jax.rules.rule import Rule
from mimetic_jax.schemes import Context


class TreeOptions(TypedDict, total=False):
    """What the leaves of a tree are: see `Options`."""

    num_heads: int | None
    num_kv_heads: int | None
    rules: Sequence[Rule] | None


class Options(TreeOptions, total=False):
    """What `plan` and `rewrite` use beside a tree and a scheme; nothing is required.

    Attributes:
        num_heads: H, if kernels store heads flattened.
        num_kv_heads: G, likewise; defaults to H.
        rules: what leaves are; defaults to the family of `zoo` that fits.
        grid: (h, w) of the patches, if the position table isn't a square grid.
        counts: how often tokens stand near each other in the text that the model will be trained
            on, of `weights.cooccurrence`: for `Cooccurrence` and `Unigram`.
        following: how often a token follows another in it, of `weights.following`: for `Bigram`.
        covariance: of the patches of the images that it will be trained on, as it gets them,
            normalized, of `weights.patch_covariance`: for `Whitened`.
    """

    grid: tuple[int, int] | None
    counts: Any
    following: Any
    covariance: Any


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], Context]:
    """Those of some `Options` that describe the tree, and the rest as schemes see it.

    >>> split({"num_heads": 4, "grid": (2, 3)})[0]
    {'num_heads': 4}
    """
    given = of_tree(options, Options)
    of_model = given.keys() - TreeOptions.__optional_keys__
    return given, Context(**{name: given.pop(name) for name in of_model})


def of_tree(options: Mapping[str, Any], kind: Any = TreeOptions) -> dict[str, Any]:
    """Some `TreeOptions` as arguments of `Tree`, after a check of their names."""
    for name in options:
        if name not in kind.__optional_keys__:
            raise unknown("option", name, kind.__optional_keys__)
    return dict(options)
