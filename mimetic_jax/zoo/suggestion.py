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
    "fused": rf"(?:to_|w_?)?qkv{_SUFFIX}|in_proj|c_attn",  # query_key_value is stored head by head
    "out": rf"(?:to_|w_?)?o(?:ut|utput)?{_SUFFIX}|c_proj|proj|dense",
}
_WANTED = (("query", "key", "value", "out"), ("fused", "out"))

_Layer = tuple[str, str, tuple[int, ...]]
"""Its name, the name of its kernel, and the shape."""


def suggestion(leaves: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """The call of `attention_rules` for the first attention by its names; "" if there is none.

    Args:
        leaves: paths and shapes.

    Example:
        >>> suggestion([("h/0/to_qkv/kernel", (8, 24)), ("h/0/to_out/kernel", (8, 8))])
        'rules=attention_rules(fused="to_qkv", out="to_out", flat=True), num_heads=…'
    """
    blocks: dict[str, dict[str, _Layer]] = defaultdict(dict)
    for path, shape in leaves:
        found = re.fullmatch(r"(?:(.*)[/.])?([^/.]*[^/.\d][^/.]*(?:[/.]\d+)?)[/.](\w+)", path)
        if found and len(shape) > 1:
            block, layer, leaf = found.groups()
            name = re.split("[/.]", layer)[0]
            for role, pattern in _NAMES.items():
                if re.fullmatch(pattern, name, re.IGNORECASE):
                    described = layer.replace(".", "/"), leaf, shape
                    blocks[block or ""].setdefault(role, described)
    for layers in blocks.values():
        for wanted in _WANTED:
            if set(wanted) <= layers.keys():
                return _call({role: layers[role] for role in wanted})
    return ""


def _call(layers: dict[str, _Layer]) -> str:
    _, leaf, shape = layers["out"]
    options = [f'{role}="{layer}"' for role, (layer, _, _) in layers.items()]
    options += ["flat=True"] * (len(shape) == 2)
    if leaf != "kernel":
        options += [f'kernel="{leaf}"'] + ["transposed=True"] * (leaf == "weight")
    heads = ", num_heads=…" if len(shape) == 2 else ""
    # Equally many heads of query, key and value have three times the columns of out's rows.
    if heads and "fused" in layers and not {3 * n for n in shape} & set(layers["fused"][2]):
        options, heads = [*options, "grouped=True"], f"{heads}, num_kv_heads=…"
    return f"rules=attention_rules({', '.join(options)}){heads}"
