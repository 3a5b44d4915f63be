"""What the leaves of a parameter tree are and how they are stored: as data, never guessed.

A layout names the axes of a stored array as einops does: "d (h k)" is a kernel with flattened
heads, "d (three h k)" one that holds query, key and value, "d (h+2g) k" one that holds them with
fewer heads of key and value than of query, "l d h k" a kernel whose layers are stacked by
`nn.scan`, "d g q k" a query with an axis for the groups and one for the heads of a group, "d k" a
key without an axis of heads, which has one.
Schemes see canonical arrays, whatever the storage.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Annotated, Literal

import jax

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import COUNT, check_fields
from mimetic_jax.rules.layout import FUSED, QUERY_HEADS, Layout

ROLES = {
    "query": "d h k",
    "key": "d g k",
    "value": "d g k",
    "out": "h k d",
    "query_bias": "h k",
    "key_bias": "g k",
    "value_bias": "g k",
    "out_bias": "d",
    "mlp_in": "d f",
    "mlp_in_bias": "f",
    "mlp_out": "f d",
    "mlp_out_bias": "d",
    "mlp_gate": "d f",
    "token_in": "n f",
    "token_in_bias": "f",
    "token_out": "f n",
    "token_out_bias": "n",
    "depthwise": "u v c",
    "depthwise_bias": "c",
    "relative_bias": "r h",
    "shared_bias": "u v",
    "patch": "u v c d",
    "position": "n d",
    "embedding": "t d",
    "unembedding": "t d",
    "unembedding_bias": "t",
    "tied_gain": "d",
    "query_gain": "k",
    "key_gain": "k",
    "attention_gain": "d",
    "attention_shift": "d",
    "attention_scale": "d",
    "mlp_gain": "d",
    "mlp_shift": "d",
    "mlp_scale": "d",
    "shared_gain": "d",
    "post_norm": "d",
}
"""Canonical axes of each role: d width, h heads, g key/value heads, k head width, f hidden width,
n tokens or positions (with the class token's), t tokens of a vocabulary, u rows and v columns of a
filter or of a table, c channels, r the rows and columns of a table in one.

Where the output layer is the embedding, `tied_gain` is the scale of the norm before it.

An MLP over channels is `mlp_in` and `mlp_out`, one over tokens `token_in` and `token_out`. The
zoo's rules for the kernels of a gated MLP, (act(x mlp_gate) ∘ x mlp_in) mlp_out, are `read_only`.

Both biases of attention logits belong to windows: `relative_bias` has a column per head and is
indexed by query − key, `shared_bias` is indexed by key − query.

A block computes x + λ ∘ f(γ ∘ x̂), where x̂ is normalized: `attention_gain` and `mlp_gain` are γ, the
scale of the norm before attention and before the MLP, `shared_gain` that of one norm before both;
`attention_shift` and `mlp_shift` the biases beside them, which no rule needs to describe;
`attention_scale` and `mlp_scale` are λ, that of LayerScale or of a norm after them, before the sum.
A `post_norm` comes after the sum and multiplies no product. No scheme writes them; `blocks` shows
the four γ and λ in the layer's block, and `check` and `fit` multiply them into the products.
`query_gain` and `key_gain` are those of norms over a head's columns, which all heads share.
"""


ATTENTION = ("query", "key", "value", "out")

FIRST_LAYER = frozenset(("embedding", "unembedding", "unembedding_bias", "tied_gain", "patch"))
NORMS = frozenset(
    ("attention_gain", "mlp_gain", "shared_gain", "attention_scale", "mlp_scale", "post_norm")
)
_MULTIPLIED = frozenset(("query", "query_bias", "embedding"))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Rule:
    """What a leaf is and how it is stored.

    Attributes:
        path: regular expression for the whole path of the leaf, or for its end from a "/" on. In
            flat names such as PyTorch's, "blocks.0.attn.qkv.weight", "/" matches a ".". The part
            before the match is the path of the block.
        role: one of `ROLES`; or two or three of them that share one leaf, in their order along an
            axis named two or three; or one for each part of an axis such as (h+2g),
            in their order, "" for a part that has none; or (), for a leaf that is known and stays
            unchanged.
        layout: the stored axes: those of the role in any order, l for stacked layers, 1 for an
            axis of size 1; parentheses enclose axes that are flattened into one.
        heads: number of heads, for a flattened leaf to which `num_heads` doesn't apply.
        within: regular expression for the path of the block; the rule is for blocks in which it is
            found. Unlike a prefix in `path`, it doesn't change the path of the block.
        beside: paths of other leaves, from that of the block on, without which the rule describes
            nothing: the name alone may be that of any layer. "!" in front is of a leaf that must
            be absent.
        form: how the model uses the stored array w: as it is; "1 + w", as Gemma's gains; or times a
            number, as Granite's logits and embedding. True is √K for a query, whose model doesn't
            divide logits by √K, as T5, and √D for an embedding, as Gemma's. A query is stored
            divided by √K times the number, so that a scheme gives the logits of other models. Other
            roles than query, query_bias and embedding have no number, and none has 0.
        untied: whether the output layer is another tensor than this embedding. By default it is
            the same if it has the same numbers, and under `jit`, which hides them, an error.
        read_only: whether only `check` reads the leaf, and schemes leave it as it is.

    Example:
        >>> Rule(r"attn/qkv/kernel", ("query", "key", "value"), "d (three h k)").roles
        ('query', 'key', 'value')
        >>> Rule(r"mamba/in_proj/.*", ()).roles
        ()
    """

    path: str
    role: str | tuple[str, ...]
    layout: str = ""
    heads: Annotated[int, COUNT] | None = None
    within: str = ""
    beside: str | tuple[str, ...] = ""
    form: bool | float | Literal["1 + w"] = False
    untied: bool | None = None
    read_only: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for field in ("path", "within"):
            _check_expression(field, getattr(self, field))
        _check_expression("path", self._expression)
        for role in filter(None, self.parts):
            if role not in ROLES:
                raise unknown("role", role, ROLES)
        if not self.form and self.form is not False:
            raise InputError("form=0 would make the leaf all zeros: leave form out")
        if self.form and self.form != "1 + w" and _MULTIPLIED.isdisjoint(self.roles):
            raise InputError(
                f"form={self.form!r} is of a query, its bias or an embedding; the role is "
                f"{self.role!r}: leave form out"
            )
        if not self.roles:
            return
        joined = self.stored.parts
        if joined and len(self.parts) != len(joined):
            raise InputError(
                f"layout {self.layout!r} has {len(joined)} parts, but the role is {self.role}"
            )
        if not joined and len(self.parts) > 1 and len(self.roles) not in FUSED:
            raise InputError(f"a leaf holds one, two or three roles, not {len(self.roles)}")
        if len(set(self.roles)) < len(self.roles):
            raise InputError(f"a leaf can't hold the same role twice: {self.role}")
        for role in self.roles if len(self.parts) > 1 else ():
            axis = self.part_axis(role)
            if not axis:
                raise InputError(f"{role} has no heads, so it can't share a leaf")
            if axis not in self.axes(role).split():
                raise InputError(f"layout {self.layout!r} has no axis of {role} in its place")
        for role in self.roles:
            expected = re.findall("[a-z]+", self.canonical(role))
            if Counter(self.stored.names) != Counter(expected):
                axes = " ".join(axis for axis in expected if axis != "l")
                axes = axes.replace(joined, f"({self.stored.sum})") if joined else axes
                raise InputError(
                    f"layout {self.layout!r} of {role} must have the axes {axes!r} "
                    "(and l, for stacked layers)"
                )

    def block(self, path: str) -> str | None:
        """The path of the block if the rule describes this leaf, else None.

        >>> rule = Rule("query/kernel", "query", "d h k", within="self")
        >>> rule.block("block_0/self_attention/query/kernel")
        'block_0/self_attention'
        >>> rule.block("block_0/attention/query/kernel")
        """
        match = search(self._expression, path)
        if match is None:
            return None
        block = path[: match.start()]
        return block if search(self.within, block) else None

    @property
    def plus_one(self) -> bool:
        """Whether the model adds 1 to the stored gain."""
        return self.form == "1 + w"

    @property
    def flat(self) -> bool:
        """Whether the leaf has heads in one axis with others, so that a number tells them apart."""
        return bool(self.roles) and any(map(self.stored.flattens, "hg"))

    @property
    def of_norm(self) -> bool:
        """Whether the leaf is a gain or a scale: it stands beside the layer that it belongs to."""
        return not NORMS.isdisjoint(self.roles)

    @property
    def of_first_layer(self) -> bool:
        """Whether the leaf embeds tokens or patches, or belongs to the output layer of tokens."""
        return not FIRST_LAYER.isdisjoint(self.roles)

    @functools.cached_property
    def needed(self) -> tuple[str, ...]:
        """The entries of `beside`."""
        return tuple(filter(None, [self.beside] if isinstance(self.beside, str) else self.beside))

    @functools.cached_property
    def _expression(self) -> str:
        # Without groups of its own, so that \1 in the path is the path's own first group.
        return rf"(?:^|[/.])(?:{self.path})\Z"

    @property
    def parts(self) -> tuple[str, ...]:
        """The role of each part of the leaf, "" of one that has none."""
        return (self.role,) if isinstance(self.role, str) else self.role

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that the leaf holds."""
        return tuple(filter(None, self.parts))

    @functools.cached_property
    def stored(self) -> Layout:
        """The layout, parsed."""
        return Layout.parse(self.layout)

    @property
    def matrix(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The stored axes of a kernel's inputs and of its outputs, in their order.

        >>> Rule("qkv", ("query", "key", "value"), "l d (three h k)").matrix
        ((1,), (2,))
        >>> Rule("out", "out", "h k d").matrix
        ((0, 1), (2,))
        """
        axes = ROLES[self.roles[0]].split()
        inputs = set(axes[:-1] if axes[0] in ("h", "f") else axes[:1])
        inputs |= {"g", QUERY_HEADS} if "h" in inputs else set()
        stored = [(at, set(names)) for at, names in enumerate(self.stored.axes)]
        return (
            tuple(at for at, names in stored if names & inputs),
            tuple(at for at, names in stored if names != {"l"} and not names & inputs),
        )

    def width(self, shape: tuple[int, ...]) -> int:
        """The size of the stream that a kernel of attention of this shape reads or writes; 0 if
        the shape doesn't fit."""
        if len(shape) != len(self.stored.axes):
            return 0
        inputs, outputs = self.matrix
        return math.prod(shape[axis] for axis in (outputs if self.role == "out" else inputs))

    def axes(self, role: str) -> str:
        """The canonical axes of a role, by the names in this layout."""
        if len(self.parts) == 1 or self.stored.parts:
            return ROLES[role]
        # A leaf with an axis for query and key has equally many heads of both.
        return ROLES[role].replace("g", "h")

    def part_axis(self, role: str) -> str:
        """The axis along which the leaf holds this role beside others; "" if there is none."""
        if joined := self.stored.parts:
            return joined[self.parts.index(role)]
        return next((axis for axis in self.axes(role).split() if axis in ("h", "g")), "")

    def canonical(self, role: str) -> str:
        """The axes to which the leaf is rearranged before the role's heads are taken from it."""
        axes = self.axes(role).split()
        if len(self.parts) > 1:
            fused = self.stored.parts or f"({FUSED[len(self.parts)]} h)"
            axes = [fused if axis == self.part_axis(role) else axis for axis in axes]
        elif QUERY_HEADS in self.stored.names:
            axes = [f"(g {QUERY_HEADS})" if axis == "h" else axis for axis in axes]
        elif "g" not in self.stored.names:  # one head of key and of value has no axis
            axes = ["1" if axis == "g" else axis for axis in axes]
        return " ".join(["l", *axes] if self.stored.stacked else axes)


def find_rule(
    path: str, rules: Iterable[Rule], among: Collection[str] = (), rank: int | None = None
) -> tuple[Rule, str] | None:
    """The first of some rules that describes a leaf, and the path of its block.

    Rules that need another leaf beside theirs look for it among the paths of all leaves. Of those
    that differ in the layout of one path, the first with as many axes as `rank` is taken.

    >>> query = Rule("query/kernel", "query", "d h k")
    >>> find_rule("block_0/attention/query/kernel", [query]) == (query, "block_0/attention")
    True
    """
    matches = (
        (rule, block)
        for rule in rules
        if (block := rule.block(path)) is not None
        and all(_has(among, block, name) for name in rule.needed)
    )
    first = next(matches, None)
    if first is None or not first[0].roles or rank in (None, len(first[0].stored.axes)):
        return first
    where = operator.attrgetter("path", "role")
    same = (match for match in matches if where(match[0]) == where(first[0]))
    return next((match for match in same if len(match[0].stored.axes) == rank), first)


def _has(paths: Collection[str], block: str, name: str) -> bool:
    if name.startswith("!"):
        return not _has(paths, block, name[1:])
    prefix = (block, name) if block else (name,)
    return "/".join(prefix) in paths or ".".join(prefix).replace("/", ".") in paths


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    """`re` itself keeps 512 expressions, fewer than the zoo has."""
    return re.compile(expression)


def search(expression: str, path: str) -> re.Match[str] | None:
    """Where an expression is found in a path or in a flat name, whose "." are its "/"."""
    pattern = _compiled(expression)
    if (match := pattern.search(path)) or "." not in path:
        return match
    return pattern.search(path.replace(".", "/"))


def _check_expression(field: str, text: str) -> None:
    try:
        re.compile(text)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise InputError(f"{field} {text!r} is not a regular expression: {error}") from error
