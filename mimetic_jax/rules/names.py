"""Names that are common in attention and in embeddings, for what no rule describes.

>>> [layer_of(path)[1:] for path in ("h/0/attn/Wqkv/kernel", "h.0.attn.to_q.weight", "norm/scale")]
[('Wqkv', 'fused'), ('to_q', 'query'), ('', '')]
"""

from __future__ import annotations

import itertools
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

_PATCHES = re.compile("patch", re.IGNORECASE)
_CONVOLUTION = re.compile("conv|embed|stem", re.IGNORECASE)
_POSITIONS = re.compile("pos|wpe", re.IGNORECASE)
_TABLE_OF_POSITIONS = re.compile(
    r"(^|[/._])(pos(ition)?s?(al)?_?(emb|enc|table)|embed_pos|wpe"
    r"|(pos(ition)?s?|pe)([/.](embedding|weight))?$)",
    re.IGNORECASE,
)
_TOKENS = re.compile(r"(^|[/._])(wte|tok|vocab|shared)|(^|[/.])emb(?=[/.]|$)|embed", re.IGNORECASE)

_NO_TEXT = re.compile(
    r"(^|[/._])(cls|class|dist|mask|reg|registers?|labels?|y)_?(tok|emb)", re.IGNORECASE
)
"""Tokens that are added to images, and the embedding of classes of a diffusion model."""


def layer_of(path: str) -> tuple[str, str, str]:
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

    Names such as key, or q, are common elsewhere as well: they count if both a query and a key
    are in one block, in matrices, and in layers of which a rule describes no leaf. If rules
    describe a leaf that differs in the numbers of layers alone, they choose layers.

    >>> attention([("a/to_q/kernel", 2), ("a/to_k/kernel", 2), ("critic/value/kernel", 2)], [])
    ['a/to_q/kernel', 'a/to_k/kernel']
    """
    layers = {layer_of(path)[:2] for path in described}
    chosen = {_unnumbered(path) for path in described}
    named = [(path, rank, *layer_of(path)) for path, rank in leaves]
    kinds: dict[str, set[str]] = defaultdict(set)
    for _, rank, block, name, kind in named:
        if rank > 1 and (block, name) not in layers:
            kinds[block].update(kind.split("_"))
    return [
        path
        for path, rank, block, name, kind in named
        if kind == "fused"
        or (_ALONE.fullmatch(name) and (block, name) not in layers)
        or (
            {"query", "key"} <= kinds[block]
            and kind not in ("", "out")
            and rank > 1
            and (block, name) not in layers
            and _unnumbered(path) not in chosen
        )
    ]


def of_text(table: str, leaves: Iterable[tuple[str, int]], every: Collection[str]) -> bool | None:
    """Whether the embedding that is nearest to a position table is of tokens, not of patches.

    None if there is neither, or both equally near. `leaves` are those that may be an embedding.

    >>> of_text("gpt/wpe", [("gpt/wte", 2), ("vit/patch_embed/kernel", 4)], ())
    True
    """
    nearest = {"tokens": -1, "patches": -1}
    for path, rank in leaves:
        if kind := _embeds(path, rank, every):
            both = zip(re.split("[/.]", path), re.split("[/.]", table), strict=False)
            shared = itertools.takewhile(lambda pair: pair[0] == pair[1], both)
            nearest[kind] = max(nearest[kind], len(list(shared)))
    tokens, patches = nearest.values()
    return None if tokens == patches else tokens > patches


def embeds_tokens(path: str, shape: tuple[int, ...]) -> bool:
    """Whether a leaf has the name and the shape of an embedding of tokens."""
    return _embeds(path, len(shape), ()) == "tokens" and not _POSITIONS.search(path)


def embeds_positions(path: str, shape: tuple[int, ...]) -> bool:
    """Whether a leaf has the name and the axes of a table of positions."""
    named = _TABLE_OF_POSITIONS.search(path) is not None and not path.endswith("kernel")
    return named and (len(shape) == 2 or (len(shape) == 3 and shape[0] == 1))


def embeds_patches(path: str, rank: int = 4) -> bool:
    """Whether a kernel with so many axes has the name of an embedding of patches."""
    return _embeds(path, rank, ()) == "patches"


def _embeds(path: str, rank: int, every: Collection[str]) -> str:
    """What a leaf embeds by its name, "tokens" or "patches"; "" if it isn't an embedding."""
    if (rank >= 2 and _PATCHES.search(path)) or (rank == 4 and _CONVOLUTION.search(path)):
        return "patches"
    if rank != 2 or not _TOKENS.search(path) or _NO_TEXT.search(path):
        return ""
    # A linear layer, of patches or of anything else, is a kernel, or has a bias beside it.
    bias = path.removesuffix("weight") + "bias"
    return "" if path.endswith("kernel") or bias in every else "tokens"


def _unnumbered(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def numbered(path: str) -> str:
    """A regular expression for a path and for those that differ in the numbers of layers.

    >>> numbered("blocks.0.attn")
    'blocks/\\\\d+/attn'
    """
    return re.sub(r"(^|[/_])\d+", r"\1\\d+", path.replace(".", "/"))
