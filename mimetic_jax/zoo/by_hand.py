"""What no table describes, and the rules by hand for it: by the names of its leaves."""

import re
from collections.abc import Iterable

from mimetic_jax.base.arguments import argument

_PARTS = '(Rule("qkv", ("query", "key", "value"), "(three h k) d"), Rule("out", "out", "d (h k)"))'

ADVICE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "(?:qk|vo)_bank",
        "banks of modded-nanogpt have rows of padding, which no layout leaves out: cut and reshape "
        "them as the docstring of zoo.NANOCHAT does, and give rules for the parts",
        (),
    ),
    (
        "qkvo_w",
        'one leaf holds three kernels and the transposed fourth: cut it into {"qkv": w[: 3 * D], '
        '"out": w[3 * D :]} and give %s, %s',
        (_PARTS,),
    ),
    (
        r"(?:q_a|q_b|kv_a|kv_b)_proj(?:_with_mqa)?/\w+",
        "latent attention has no query and key that read the same activations, so that no scheme "
        "for their product applies; put other layers in front, or leave this one out with "
        'Rule(r"(?:q|kv)_[ab]_proj.*", ())',
        (),
    ),
    (
        r"single_blocks/(?:layers/)?\d+/linear1/\w+",
        "linear1 holds query, key, value and the MLP's first layer: cut it into "
        '{"qkv": w[: 3 * D], "mlp": w[3 * D :]}, linear2 into '
        '{"out": w[:, :D], "mlp_out": w[:, D:]}, and give %s, %s',
        (_PARTS,),
    ),
    (
        r"post/w",
        "give %s if praxis has output_proj_use_nhd_shape, and %s, %s if it has "
        "attention_combine_dims",
        (
            '(Rule("post/w", "out", "h k d"), *zoo.PRAXIS)',
            '(Rule("post/w", "out", "d (h k)"), *attention_rules(kernel="w", bias="b", flat=True))',
        ),
    ),
)
"""Regular expressions for the end of a path, from a "/" on, what to do about such a leaf, and the
rules to give. The number of heads follows the last of them."""


def by_hand(paths: Iterable[str]) -> str:
    """The advice for the first leaf that has one; else "".

    >>> by_hand(["lm_head.weight", "blocks.0.attn.qkvo_w"])[:21]
    'one leaf holds three '
    """
    for path in paths:
        for expression, advice, rules in ADVICE:
            if re.search(rf"(?:^|/)(?:{expression})\Z", path.replace(".", "/")):
                given = [argument("rules", one) for one in rules]
                return advice % (*given, argument("num_heads", "…")) if rules else advice
    return ""
