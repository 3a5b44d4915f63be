"""The keywords that all doors to a tree share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.rules.rule import Rule
from mimetic_jax.schemes import Context, Scheme
from mimetic_jax.schemes.base import name_of, used_by


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
        grid: (h, w) of the patches, if the position table isn't a square grid: for `SinCos`,
            `Impulse` and `ImpulseMixing`.
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


def split(options: Mapping[str, Any], schemes: Sequence[Scheme]) -> tuple[dict[str, Any], Context]:
    """Those of some `Options` that describe the tree, and the rest as schemes see it.

    >>> from mimetic_jax.schemes import SinCos
    >>> split({"num_heads": 4, "grid": (2, 3)}, [SinCos()])[0]
    {'num_heads': 4}
    """
    given = of_tree(options, Options)
    of_model = {x: given.pop(x) for x in [*given] if x not in TreeOptions.__optional_keys__}
    for name, value in of_model.items():
        if value is not None and name not in used_by(schemes):
            raise InputError(
                f"no scheme of ({', '.join(map(name_of, schemes))}) uses {name}: leave {name} out. "
                f"In a scheme of your own that reads context.{name}, set the class attribute "
                f"uses = frozenset({{{name!r}}})"
            )
    return given, Context(**of_model)


def of_tree(options: Mapping[str, Any], kind: Any = TreeOptions) -> dict[str, Any]:
    """Some `TreeOptions` as arguments of `Tree`, after a check of their names."""
    for name in options:
        if name not in kind.__optional_keys__:
            raise unknown("option", name, kind.__optional_keys__)
    return dict(options)
