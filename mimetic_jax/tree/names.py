"""Names that are common in attention: for refusing what no rule describes, and for suggesting one.

>>> [found(path)[1:] for path in ("h/0/attn/Wqkv/kernel", "h.0.attn.to_q.weight", "norm/scale")]
[('Wqkv', 'fused'), ('to_q', 'query'), ('', '')]
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable

_BEFORE = "(?:to_|w_?|c_|lin(?:ear)?_|fc_)?"
_AFTER = "(?:_?(?:proj|projection|lin|linear|layer|dense|einsum))?(?:_?\\d+)?"
_KINDS = {
    "query": "q(?:uery|ueries)?",
    "key": "k(?:eys?)?",
    "value": "v(?:alues?)?",
    "fused": "qkv|query_key_value",
    "query_key": "qk",
    "key_value": "kv",
    "out": "o(?:ut|utput)?|attn_vec",
}
_OTHERS = {"fused": "in_proj(?:_weight)?|c_attn", "out": "c_proj|proj|dense"}
_PATTERNS = {
    kind: re.compile(
        rf"{_BEFORE}(?:{stem}){_AFTER}" + (f"|{_OTHERS[kind]}" if kind in _OTHERS else ""),
        re.IGNORECASE,
    )
    for kind, stem in _KINDS.items()
}
_ALONE = re.compile("[qkv]_proj|w[qkv]", re.IGNORECASE)
"""Names of one kernel that belong to attention, whatever is beside them."""


def found(path: str) -> tuple[str, str, str]:
    """The block, the name and the kind of the attention layer that a leaf seems to belong to.

    A kind is a role, "fused" for query, key and value in one layer, or two of them such as
    "key_value". All are "" if no part of the path has such a name.
    """
    for part in re.finditer(r"[^/.]+", path):
        for kind, pattern in _PATTERNS.items():
            if pattern.fullmatch(part[0]):
                return path[: max(part.start() - 1, 0)], part[0], kind
    return "", "", ""


def attention(leaves: Iterable[tuple[str, int]], described: Collection[str]) -> list[str]:
    """Leaves that seem to be of attention which no rule describes, by the names of layers.

    Names such as key, or q, are common elsewhere as well: they count where both a query and a key
    are in one block, in matrices, and in layers of which a rule describes no leaf. Where rules
    describe a leaf that differs in the numbers of layers alone, they choose layers.

    Args:
        leaves: paths and numbers of axes, of the leaves that no rule describes.
        described: the paths of the others.

    >>> attention([("a/to_q/kernel", 2), ("a/to_k/kernel", 2), ("critic/value/kernel", 2)], [])
    ['a/to_q/kernel', 'a/to_k/kernel']
    """
    layers = {found(path)[:2] for path in described}
    chosen = {_unnumbered(path) for path in described}
    named = [(path, rank, *found(path)) for path, rank in leaves]
    kinds: dict[str, set[str]] = defaultdict(set)
    for _, rank, block, name, kind in named:
        if rank > 1 and (block, name) not in layers:
            kinds[block].update(kind.split("_"))
    return [
        path
        for path, rank, block, name, kind in named
        if kind == "fused"
        or _ALONE.fullmatch(name)
        or (
            {"query", "key"} <= kinds[block]
            and kind not in ("", "out")
            and rank > 1
            and (block, name) not in layers
            and _unnumbered(path) not in chosen
        )
    ]


def _unnumbered(path: str) -> str:
    return re.sub(r"\d+", "#", path)
