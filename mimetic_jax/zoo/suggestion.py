"""The rules to give for a tree that no table describes, read off the names of its layers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_SUFFIX = "(?:_?(?:proj|projection|lin|linear|layer|dense))?"
_NAMES = {
    "query": rf"(?:to_|w_?)?q(?:uery|ueries)?{_SUFFIX}",
    "key": rf"(?:to_|w_?)?k(?:eys?)?{_SUFFIX}",
    "value": rf"(?:to_|w_?)?v(?:alues?)?{_SUFFIX}",
    "fused": rf"(?:to_|w_?)?qkv{_SUFFIX}|in_proj|c_attn|query_key_value",
    "out": rf"(?:to_|w_?)?o(?:ut|utput)?{_SUFFIX}|c_proj|proj|dense",
}
_WANTED = (("query", "key", "value", "out"), ("fused", "out"))


def suggestion(leaves: Iterable[tuple[str, int]]) -> str:
    """The call of `attention_rules` for the first attention by its names; "" if there is none.

    Args:
        leaves: paths and numbers of axes.

    Example:
        >>> suggestion([("h/0/to_qkv/kernel", 2), ("h/0/to_out/kernel", 2)])
        'rules=attention_rules(fused="to_qkv", out="to_out", flat=True), num_heads=…'
    """
    blocks: dict[str, dict[str, tuple[str, str, int]]] = defaultdict(dict)
    for path, rank in leaves:
        found = re.fullmatch(r"(?:(.*)[/.])?([^/.]*[^/.\d][^/.]*(?:[/.]\d+)?)[/.](\w+)", path)
        if found and rank > 1:
            block, layer, leaf = found.groups()
            name = re.split("[/.]", layer)[0]
            for role, pattern in _NAMES.items():
                if re.fullmatch(pattern, name, re.IGNORECASE):
                    described = layer.replace(".", "/"), leaf, rank
                    blocks[block or ""].setdefault(role, described)
    for layers in blocks.values():
        for wanted in _WANTED:
            if set(wanted) <= layers.keys():
                return _call({role: layers[role] for role in wanted})
    return ""


def _call(layers: dict[str, tuple[str, str, int]]) -> str:
    _, leaf, rank = layers["out"]
    options = [f'{role}="{layer}"' for role, (layer, _, _) in layers.items()]
    options += ["flat=True"] * (rank == 2)
    if leaf != "kernel":
        options += [f'kernel="{leaf}"'] + ["transposed=True"] * (leaf == "weight")
    heads = ", num_heads=…" if rank == 2 else ""
    return f"rules=attention_rules({', '.join(options)}){heads}"
