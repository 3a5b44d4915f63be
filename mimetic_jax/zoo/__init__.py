"""Families of models: for each, what every leaf of its layers is.

`plan`, `rewrite`, `check` and their likes find the family that knows a tree completely (`detect`),
or know its modules of attention and MLPs by `COMMON` names; `plan` names the family. Or give the
rules of one by its name, alone or behind rules of your own, since the first match wins:

    rules=(Rule(r"my_pool/out/kernel", "out", "h k d"), *zoo.BIG_VISION)

Every name, shape and orientation was read in the source that the family's docstring cites. All
have this in common:

- They describe self-attention only. Cross-attention and attention pooling, whose queries come
  from other tokens than their keys, keep their initialization.
- A gated MLP, (act(x W₀) ∘ x W₁) W₂, has no single first layer, and constants meant for two layers
  don't transfer to it: its leaves stay unchanged, unless a scheme is for it, too. `check` reads
  them.
- Gains and scales, which `check` and `fit` fold into products, are those of the family's layers.
- Stacked layers draw like single ones: layer l folds l into the key of its block.

>>> import jax.numpy as jnp
>>> from mimetic_jax import plan, schemes
>>> square, wide = jnp.zeros((8, 8)), jnp.zeros((24, 8))
>>> layer = {"attn": {"c_attn": {"kernel": wide}, "c_proj": {"kernel": square}}}
>>> tree = {"transformer": {"h": {"0": layer}}}
>>> print(plan(tree, schemes.Mimetic(), num_heads=2))
rules: zoo.GPT2
leaves  path                               role   shape    layout
Mimetic:
1       transformer/h/0/attn/c_attn/kernel  key    (24, 8)  (three h k) d
1       transformer/h/0/attn/c_proj/kernel  out    (8, 8)   d (h k)
1       transformer/h/0/attn/c_attn/kernel  query  (24, 8)  (three h k) d
1       transformer/h/0/attn/c_attn/kernel  value  (24, 8)  (three h k) d
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import Rule
from mimetic_jax.zoo import encoders, gemma, gpt2, llama, maxtext, timm, vit_jax
from mimetic_jax.zoo.common import COMMON as _COMMON
from mimetic_jax.zoo.family import Family, Fit, Shapes, fitted
from mimetic_jax.zoo.haliax import named_rules
from mimetic_jax.zoo.model_config import ModelConfig

__all__ = ["FAMILIES", "TABLES", "detect", "rules_of", "rules_of_config"]

FAMILIES: Mapping[str, Family] = {
    "LLAMA": llama.LLAMA,
    "GEMMA_1": llama.GEMMA_1,
    "GEMMA_2": llama.GEMMA_2,
    "PHI": llama.PHI,
    "PHI_3": llama.PHI_3,
    "GPT_NEOX": llama.GPT_NEOX,
    "GPT2": gpt2.GPT2,
    "NANOGPT": gpt2.NANOGPT,
    "BERT": encoders.BERT,
    "VIT": encoders.VIT,
    "DINOV2": encoders.DINOV2,
    "T5": encoders.T5,
    "WHISPER": encoders.WHISPER,
    "BART": encoders.BART,
    "TIMM": timm.TIMM,
    "SWIN": timm.SWIN,
    "TORCHVISION": timm.TORCHVISION,
    "BIG_VISION": vit_jax.BIG_VISION,
    "GEMMA": gemma.GEMMA,
    "MAXTEXT": maxtext.MAXTEXT,
    "MAXTEXT_LLAMA": maxtext.MAXTEXT_LLAMA,
}
"""All families by name; of those that describe the same the first is preferred."""

TABLES: Mapping[str, tuple[Rule, ...]] = {
    **{name: family.rules for name, family in FAMILIES.items()},
    "COMMON": _COMMON.rules,
}
"""Their rules by name, as `rules` takes them."""


def __getattr__(name: str) -> tuple[Rule, ...]:
    if name in TABLES:
        return TABLES[name]
    raise AttributeError(f"module 'mimetic_jax.zoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *TABLES})


def detect(params: Any) -> str | None:
    """Find the family that describes a tree completely.

    Args:
        params: a parameter tree, or one of `jax.ShapeDtypeStruct`.

    Returns:
        A name in `FAMILIES`; None if none knows all leaves of the layers with attention.

    Raises:
        InputError: if several do, each of another part or in different ways.

    Example:
        >>> import jax.numpy as jnp
        >>> shapes = {"c_attn": (24, 8), "c_proj": (8, 8)}
        >>> detect({f"h/0/attn/{name}": {"kernel": jnp.zeros(x)} for name, x in shapes.items()})
        'GPT2'
    """
    return _complete(tuple(paths.shapes(params)))


def family_of(params: Any, shapes: Shapes | None = None) -> Family:
    """Find the family that describes a tree completely, or `COMMON` names.

    If axes have names (haliax), these give the rules. `shapes` are `paths.shapes` of the tree.
    """
    shapes = paths.shapes(params) if shapes is None else shapes
    if rules := named_rules(params, shapes):
        return Family(rules, harmless=".", by_layer=False)
    name = _complete(tuple(shapes))
    return FAMILIES[name] if name else _COMMON


def rules_of(params: Any) -> tuple[Rule, ...]:
    """Return the rules that `rewrite` takes if none are given."""
    return family_of(params, paths.shapes(params)).rules


def _complete(shapes: Shapes) -> str | None:
    fits = {
        name: fit
        for name, family in FAMILIES.items()
        if not family.by_config and (fit := fitted(family, shapes)).complete
    }
    if not fits:
        return None
    best = max(fits, key=lambda name: len(fits[name].kernels))
    for name, fit in fits.items():
        others = fit.kernels.keys() - fits[best].kernels.keys()
        if others:
            raise InputError(
                f"zoo.{best} describes one part of this tree and zoo.{name} another, such as "
                f"{min(others)}: pass rules=(*zoo.{best}, *zoo.{name})"
            )
        if path := _difference(fit, fits[best]):
            raise InputError(
                f"zoo.{best} and zoo.{name} fit this tree equally well, but differ in {path}: "
                f"pass rules=zoo.{best} or rules=zoo.{name}"
            )
    return best


def _difference(fit: Fit, other: Fit) -> str:
    """A kernel that two families hold in different ways, or ""."""
    for path, rule in fit.kernels.items():
        same = other.kernels[path]
        if (rule.role, rule.layout, rule.form) != (same.role, same.layout, same.form):
            return path
    return ""


def closest(shapes: Shapes, known: Family | None) -> tuple[str, tuple[str, ...]]:
    """The family that describes attention of a tree and lacks fewest leaves of its layers, and
    these; none, if its kernels have another order of storage, and "" if none describes any. The one
    that a configuration tells is the only one."""
    told = name_of(known.rules) if known else ""
    every = [name for name, family in FAMILIES.items() if not family.by_config]
    fits = {
        name: fit
        for name in ([told] if told in FAMILIES else every)
        if (fit := fitted(FAMILIES[name], shapes)).kernels
    }
    name = min(fits, key=lambda name: (fits[name].disagree, len(fits[name].unknown)), default="")
    return name, () if not name or fits[name].disagree else fits[name].unknown


def name_of(rules: Sequence[Rule]) -> str:
    """The name of the family whose rules these are, but for what a configuration says, or ""."""
    described = _described(rules)
    return next((name for name, table in TABLES.items() if _described(table) == described), "")


def _described(rules: Iterable[Rule]) -> set[tuple[str, object, object]]:
    """What rules say apart from their number of heads and the form of their leaves."""
    return {(rule.path, rule.role, rule.layout) for rule in rules}


def rules_of_config(params: Any, config: Any) -> Family:
    """The family of a model by Hugging Face's configuration, whose type tells it.

    What the configuration says of their leaves is in its rules: what logits and the embedding are
    multiplied by, whether the output layer is another tensor, and the heads of encoder and decoder
    if these differ.

    Args:
        params: a parameter tree; if it has other names than Hugging Face's, they tell the family.
        config: a dictionary, an object with `to_dict`, config.json or its folder.

    Raises:
        InputError: for a type of models that no family has, or a value of one of its fields that
            isn't implemented.
    """
    stated = ModelConfig.of(config)
    shapes = tuple(paths.shapes(params))
    family = dataclasses.replace(stated.check_known().family, needs="")  # the type tells it
    if not fitted(family, shapes).kernels:
        family = family_of(params, shapes)
    rules = with_config(family.rules, stated)
    return family if rules == family.rules else dataclasses.replace(family, rules=rules)


def with_config(rules: Iterable[Rule], config: ModelConfig) -> tuple[Rule, ...]:
    """Rules with what a configuration says of their leaves, where they don't say it themselves."""
    return tuple(each for rule in rules for each in _stated(rule, config))


def _stated(rule: Rule, config: ModelConfig) -> list[Rule]:
    """A rule with what a configuration says of its leaf; one for each side with other heads."""
    if "query" in rule.roles and config.multiplier:
        form = rule.form or config.multiplier == 1 or config.multiplier
        rule = dataclasses.replace(rule, form=form)
    if "embedding" in rule.roles:
        form = rule.form or config.embedding
        untied = True if rule.untied is None and config.untied else rule.untied
        rule = dataclasses.replace(rule, form=form, untied=untied)
    if not config.sides or not rule.flat or rule.heads:
        return [rule]
    return [
        dataclasses.replace(rule, heads=heads, within=f"(?:^|/){side}/.*(?:{rule.within})")
        for side, heads in config.sides.items()
    ]
