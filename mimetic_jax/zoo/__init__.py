"""Tables of rules for the parameter trees of well-known model zoos: data, no code.

`plan`, `rewrite`, `check` and their likes choose the table that fits a tree (`detect`), and `plan`
names it; or pass one as `rules`. Put rules of your own in front, since the
first match wins:

    rules=(Rule(r"my_pool/out/kernel", "out", "h k d"), *zoo.BIG_VISION)

Every name, shape and orientation was read in the source that the table's docstring cites. All
tables have this in common:

- They describe self-attention only. Cross-attention and attention pooling, whose queries come
  from other tokens than their keys, have no rules: they keep their initialization, or raise an
  error if their names don't distinguish them from self-attention that a table has missed.
- An MLP has the roles mlp_in and mlp_out only if it is two layers with an activation between
  them. A gated MLP, (act(x W₀) ∘ x W₁) W₂, has no single first layer, and constants meant for
  two layers don't transfer to it: its leaves stay unchanged, unless a scheme is for it, too.
  `check` reads them.
- Gains and scales, which `check` and `fit` fold into products, are stated if the source shows
  whether they stand before or after a layer; of others nothing is folded.
- Stacked layers draw like single ones: layer l folds l into the key of its block.

>>> import jax, jax.numpy as jnp
>>> from mimetic_jax import plan, schemes
>>> square, wide = jnp.zeros((8, 8)), jnp.zeros((24, 8))
>>> layer = {"attn": {"c_attn": {"kernel": wide}, "c_proj": {"kernel": square}}}
>>> tree = {"transformer": {"h": {"0": layer}}}
>>> print(plan(tree, schemes.Mimetic(), num_heads=2))
rules: zoo.HUGGING_FACE_GPT2
leaves  path                               role   shape    layout
Mimetic:
1       transformer/h/0/attn/c_attn/kernel  key    (24, 8)  (three h k) d
1       transformer/h/0/attn/c_proj/kernel  out    (8, 8)   d (h k)
1       transformer/h/0/attn/c_attn/kernel  query  (24, 8)  (three h k) d
1       transformer/h/0/attn/c_attn/kernel  value  (24, 8)  (three h k) d
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from mimetic_jax.base.model_config import ModelConfig
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import FLAX
from mimetic_jax.zoo.detection import best_table
from mimetic_jax.zoo.equinox import EQUINOX, EQUINOX_STACKED
from mimetic_jax.zoo.flax import FLAX_STACKED
from mimetic_jax.zoo.gemma import GEMMA, OPENPI
from mimetic_jax.zoo.gpt2 import HUGGING_FACE_GPT2, NANOGPT, PYTORCH_GPT2, PYTORCH_NANOGPT
from mimetic_jax.zoo.hugging_face import HUGGING_FACE, HUGGING_FACE_PLUS_ONE
from mimetic_jax.zoo.maxtext import MAXTEXT, MAXTEXT_LLAMA
from mimetic_jax.zoo.named import named_rules
from mimetic_jax.zoo.pytorch import BY_TYPE, GROUPED_BY_TYPE, PYTORCH, PYTORCH_PLUS_ONE
from mimetic_jax.zoo.t5x import T5X
from mimetic_jax.zoo.tunix import TUNIX
from mimetic_jax.zoo.vit_jax import BIG_VISION

__all__ = [  # noqa: RUF022 - tables in the order in which the first that fits is preferred
    "FLAX_STACKED",
    "BIG_VISION",
    "HUGGING_FACE",
    "HUGGING_FACE_GPT2",
    "NANOGPT",
    "TUNIX",
    "GEMMA",
    "OPENPI",
    "MAXTEXT",
    "MAXTEXT_LLAMA",
    "EQUINOX",
    "EQUINOX_STACKED",
    "T5X",
    "PYTORCH",
    "PYTORCH_GPT2",
    "PYTORCH_NANOGPT",
    "HUGGING_FACE_PLUS_ONE",
    "PYTORCH_PLUS_ONE",
    "NOTES",
    "TABLES",
    "detect",
    "has_rule",
    "rules_of",
    "rules_of_config",
    "table_name",
]

TABLES: Mapping[str, tuple[Rule, ...]] = {
    name: table for name in __all__ if isinstance(table := globals().get(name), tuple)
}
"""All tables by name."""

_OF_TABLES = frozenset(map(id, itertools.chain(FLAX, *TABLES.values())))

_UNDIVIDED = "the query takes 1/√K, as the model doesn't divide logits by √K"
_SAME_CLASS = "cross-attention is the same class: see that none is among these"
NOTES: Mapping[str, str] = {
    "MAXTEXT": "models that divide logits by √K or normalize queries; others are MAXTEXT_LLAMA",
    "MAXTEXT_LLAMA": _UNDIVIDED,
    "T5X": _UNDIVIDED,
    "EQUINOX": _SAME_CLASS,
    "EQUINOX_STACKED": _SAME_CLASS,
}
"""What to know before a table is used; `plan` prints it."""


def detect(params: Any) -> str | None:
    """The name of the table that a tree looks like, or None.

    Look at `plan`, which lists what the table describes and what it leaves.

    Args:
        params: a parameter tree, or one of `jax.ShapeDtypeStruct`.

    Returns:
        A name in `TABLES`; None if none has attention of the tree, or if the stock Flax names
        that `rewrite` knows without a table describe as much.

    Raises:
        InputError: if several tables describe as much of the tree in different ways, or parts of it
            that the others don't describe.

    Example:
        >>> import jax.numpy as jnp
        >>> square = jnp.zeros((8, 8))
        >>> names = ("q_proj", "k_proj", "v_proj", "o_proj")
        >>> detect({f"layers/0/self_attn/{name}": {"kernel": square} for name in names})
        'HUGGING_FACE'
    """
    return _detected(paths.shapes(params))


def rules_of(
    params: Any, shapes: Sequence[tuple[str, tuple[int, ...]]] | None = None
) -> tuple[Rule, ...]:
    """Find the rules that `rewrite` uses by default: stock Flax's, or the table that fits.

    If axes have names (haliax, penzai), the rules come from these.

    Args:
        params: a parameter tree.
        shapes: `paths.shapes` of the tree, if they are known.

    Returns:
        A tuple of rules.

    Raises:
        InputError: as `detect`.
    """
    shapes = paths.shapes(params) if shapes is None else shapes
    if rules := named_rules(params, shapes):
        return rules
    name = _detected(shapes)
    return TABLES[name] if name else FLAX


def _detected(shapes: Sequence[tuple[str, tuple[int, ...]]]) -> str | None:
    # Names don't show whether a model adds 1 to its gains.
    told_apart = {name: rules for name, rules in TABLES.items() if not name.endswith("_PLUS_ONE")}
    return best_table(shapes, {"": FLAX, **told_apart}) or None


def rules_of_config(params: Any, config: Any) -> tuple[Rule, ...] | None:
    """The rules of a model by Hugging Face's configuration; None where names alone tell them.

    Its type tells models apart that share names. What it multiplies logits or its embedding by is
    in the rules of these leaves.

    Args:
        params: a parameter tree.
        config: a dictionary, an object with `to_dict`, config.json or its folder.

    Returns:
        A tuple of rules, or None.

    Raises:
        InputError: for a type of models, or a field of attention, that the table of types lacks.
    """
    stated = ModelConfig.of(config)
    stated.check_known()
    kind = stated.model_type
    rules = (GROUPED_BY_TYPE if stated.grouped else {}).get(kind) or BY_TYPE.get(kind)
    if rules is None and stated.plus_one:
        rules = TABLES.get(f"{detect(params)}_PLUS_ONE")
    changes: dict[str, dict[str, Any]] = {
        "query": {"undivided": stated.multiplier == 1 or stated.multiplier},
        "embedding": {"multiplied": stated.embedding},
    }
    for role, change in changes.items():
        if any(change.values()):
            rules = tuple(
                dataclasses.replace(rule, **change) if role in rule.roles else rule
                for rule in rules or rules_of(params)
            )
    return rules


def has_rule(rule: Rule) -> bool:
    """Tell whether a rule is one of a table, not only equal to one.

    Args:
        rule: any rule.

    Returns:
        True or False.
    """
    return id(rule) in _OF_TABLES


def table_name(rules: Sequence[Rule]) -> str | None:
    """Find the name of the table that these rules are.

    Args:
        rules: a sequence of rules.

    Returns:
        A name in `TABLES`, or None.
    """
    return next((name for name, table in TABLES.items() if table is rules), None)
