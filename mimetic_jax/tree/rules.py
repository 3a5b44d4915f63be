"""What the leaves of a parameter tree are and how they are stored: as data, never guessed.

A layout names the axes of a stored array as einops does: "d (h k)" is a kernel with flattened
heads, "d (three h k)" one that holds query, key and value, "d (h+2g) k" one that holds them with
fewer heads of key and value than of query, "d (2i+2s+m)" the input projection of a state space
layer, "l d h k" a kernel whose layers are stacked by `nn.scan`. Schemes see canonical arrays,
whatever the storage.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import einops
import jax
import numpy as np
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from mimetic_jax.base.errors import InputError, unknown
from mimetic_jax.base.typed import COUNT, check_fields

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
    "position": "n d",
    "embedding": "t d",
    "attention_gain": "d",
    "attention_scale": "d",
    "mlp_gain": "d",
    "mlp_scale": "d",
    "ssm_a": "m",
    "ssm_dt_bias": "m",
    "ssm_b": "d s",
    "ssm_c": "d s",
    "ssm_conv": "u c",
    "ssm_conv_bias": "c",
    "ssm_norm": "i",
}
"""Canonical axes of each role: d width, h heads, g key/value heads, k head width, f hidden width,
n tokens or positions, t tokens of a vocabulary, u rows and v columns of a filter or of a table, c
channels, r the rows and columns of a table in one. An MLP over channels is `mlp_in` and `mlp_out`,
one over tokens `token_in` and `token_out`. In a gated MLP, (act(x mlp_gate) ∘ x mlp_in) mlp_out, no
rule of the zoo describes the kernels, and none describes the embedding of tokens; a rule of one's
own may.

Both biases of attention logits belong to windows: `relative_bias` has a column per head and is
indexed by query − key, `shared_bias` is indexed by key − query.

A block computes x + λ ∘ f(γ ∘ x̂), where x̂ is normalized: `attention_gain` and `mlp_gain` are γ, the
scale of the norm before attention and before the MLP, `attention_scale` and `mlp_scale` are λ, that
of LayerScale after them. No scheme writes them; `check` and `fit` multiply them into the products.

A state space layer has m heads, s numbers of state over all groups, i inner columns, and filters
of u taps: `ssm_a` is the logarithm A_log of −A, `ssm_a_states` that of a layer which has one for
each column and number of state, `ssm_dt_bias` the bias of Δ before softplus,
`ssm_norm` the scale of the gated norm."""

_FUSED = {2: "two", 3: "three"}
_GROUPED = "(h+2g)"
"""H query heads, G key heads and G value heads along one axis."""
GROUPED_ADVICE = (
    "with fewer heads of key and value than of query give num_kv_heads and, if all of query come "
    "before all of key and of value, attention_rules(…, grouped=True); no layout describes others"
)
_JOINED = re.compile(r"\((\d*[a-z](?:\+\d*[a-z])+)\)")
"""Parts of different sizes along one axis. Their letters are einops' name for that axis."""
_GIVEN = {"h": "num_heads", "g": "num_kv_heads"}
"""Sizes that the caller gives."""
_AXIS = r"(?:1|[a-z]+|\([a-z]+(?: [a-z]+)*\))"
_LAYOUT = re.compile(rf"{_AXIS}(?: {_AXIS})*")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a leaf is and how it is stored.

    Attributes:
        path: regular expression for the whole path of the leaf, or for its end from a "/" on. In
            flat names such as PyTorch's, "blocks.0.attn.qkv.weight", "/" matches a ".". The part
            before the match is the path of the block.
        role: one of `ROLES`; or two or three of them that share one leaf, in their order along an
            axis named two or three; or one for each part of an axis such as (h+2g) or (2i+2s+m),
            in their order, "" for a part that has none; or (), for a leaf that stays unchanged
            although its name is common in attention.
        layout: the stored axes: those of the role in any order, l for stacked layers, 1 for an
            axis of size 1; parentheses enclose axes that are flattened into one.
        heads: number of heads, for a flattened leaf to which `num_heads` doesn't apply.
        within: regular expression for the path of the block; the rule is for blocks in which it is
            found. Unlike a prefix in `path`, it doesn't change the path of the block.
        exclude: likewise for the whole path of the leaf; leaves in which it is found stay
            unchanged, unless another rule describes them.
        partner: a role that another leaf of the block must have, such as mlp_out beside mlp_in. A
            scheme that writes the leaf in a block without it raises InputError.
        beside: the end of the path of another leaf of the block, without which the rule describes
            nothing: the name alone may be that of any layer.
        undivided: whether the model doesn't divide logits by √K. The stored query, and its bias, is
            then the canonical one over √K, so that a scheme's logits are those of other models.
        plus_one: whether the model adds 1 to the stored gain, as Gemma does.

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
    exclude: str = ""
    partner: str = ""
    beside: str = ""
    undivided: bool = False
    plus_one: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for field in ("path", "within", "exclude"):
            _check_expression(field, getattr(self, field))
        _check_expression("path", self._expression)
        for role in filter(None, (*self.parts, self.partner)):
            if role not in ROLES:
                raise unknown("role", role, ROLES)
        if self.joined and len(self.parts) != len(self.joined):
            raise InputError(
                f"layout {self.layout!r} has {len(self.joined)} parts, but the role is {self.role}"
            )
        if not self.joined and len(self.parts) > 1 and len(self.roles) not in _FUSED:
            raise InputError(f"a leaf holds one, two or three roles, not {len(self.roles)}")
        if len(set(self.roles)) < len(self.roles):
            raise InputError(f"a leaf can't hold the same role twice: {self.role}")
        if self.roles and not _LAYOUT.fullmatch(self.stored):
            raise InputError(
                f"layout {self.layout!r} is not a list of axes such as 'd h k' or 'l d (three h k)'"
            )
        for role in self.roles if len(self.parts) > 1 else ():
            axis = self.part_axis(role)
            if not axis:
                raise InputError(f"{role} has no heads, so it can't share a leaf")
            if axis not in self.axes(role).split():
                raise InputError(f"layout {self.layout!r} has no axis of {role} in its place")
        stored = Counter(_names(self.stored))
        for role in self.roles:
            expected = _names(self.canonical(role))
            if stored != Counter(expected):
                axes = " ".join(axis for axis in expected if axis != "l")
                axes = axes.replace(self.joined, f"({self._sum})") if self.joined else axes
                raise InputError(
                    f"layout {self.layout!r} of {role} must have the axes {axes!r} "
                    "(and l, for stacked layers)"
                )

    def block(self, path: str) -> str | None:
        """The path of the block if the rule describes this leaf, else None.

        >>> rule = Rule("query/kernel", "query", "d h k", exclude="cross")
        >>> rule.block("block_0/attention/query/kernel")
        'block_0/attention'
        >>> rule.block("block_0/cross_attention/query/kernel")
        """
        found = self._match(path)
        if found is None or (self.exclude and _search(self.exclude, path)):
            return None
        block = path[: found.start()]
        return block if _search(self.within, block) else None

    def leaves_out(self, path: str) -> bool:
        """Whether the rule would describe this leaf but for `within` or `exclude`."""
        return self._match(path) is not None and self.block(path) is None

    def excludes(self, path: str) -> bool:
        """Whether the rule would describe this leaf but for `exclude`."""
        return bool(self.exclude and self._match(path) and _search(self.exclude, path))

    def _match(self, path: str) -> re.Match[str] | None:
        return _search(self._expression, path)

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

    @property
    def rank(self) -> int:
        """How many axes the leaf has."""
        return len(_groups(self.stored))

    @property
    def stacked(self) -> bool:
        """Whether the leaf stacks all layers."""
        return "l" in _names(self.stored)

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
        groups = [set(_names(group)) for group in _groups(self.stored)]
        return (
            tuple(at for at, names in enumerate(groups) if names & inputs),
            tuple(at for at, names in enumerate(groups) if names != {"l"} and not names & inputs),
        )

    @property
    def joined(self) -> str:
        """A letter per part of an axis with parts of different sizes: "hgg" of (h+2g), or ""."""
        terms = re.findall(r"(\d*)([a-z])", self._sum)
        return "".join(letter * int(count or 1) for count, letter in terms)

    @property
    def _sum(self) -> str:
        found = _JOINED.search(self.layout)
        return found[1] if found else ""

    def part_axis(self, role: str) -> str:
        """The axis along which the leaf holds this role beside others."""
        if self.joined:
            return self.joined[self.parts.index(role)]
        return _head_axis(self.axes(role).split())

    def flattens(self, axis: str) -> bool:
        """Whether the leaf stores this axis with others as one."""
        return any(axis in _names(group) for group in _groups(self.stored) if " " in group)

    @property
    def stored(self) -> str:
        """The layout as einops reads it."""
        return self.layout.replace(f"({self._sum})", self.joined) if self.joined else self.layout

    def axes(self, role: str) -> str:
        """The canonical axes of a role, by the names in this layout."""
        if len(self.parts) == 1 or self.joined:
            return ROLES[role]
        # A leaf with an axis for query and key has equally many heads of both.
        return ROLES[role].replace("g", "h")

    def canonical(self, role: str) -> str:
        """The axes to which the leaf is rearranged before the role's heads are taken from it."""
        axes = self.axes(role).split()
        if len(self.parts) > 1:
            fused = self.joined or f"({_FUSED[len(self.parts)]} h)"
            axes = [fused if axis == self.part_axis(role) else axis for axis in axes]
        return " ".join([*(["l"] if self.stacked else []), *axes])

    def sizes(
        self,
        path: str,
        shape: tuple[int, ...],
        heads: Mapping[str, int | None],
        beside: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[str, int]:
        """The size of each axis of a stored leaf.

        Args:
            path: the leaf's path, for error messages.
            shape: the stored shape.
            heads: the numbers of heads "h" and "g" or None, for layouts that flatten heads.
            beside: sizes of axes of other leaves of the block, for the parts of a joined axis.

        Raises:
            InputError: if the shape doesn't fit the layout, or a number of heads is missing.
        """
        groups = _groups(self.stored)
        problem = f"{path} has shape {shape}, which doesn't fit layout {self.layout!r}"
        if len(groups) != len(shape):
            advice = "give rules=(Rule(path, role, layout), …) for this tree"
            if len(shape) > len(groups) + (not self.stacked):
                advice = (
                    "where layers are stacked along several axes, draw under jax.vmap over the "
                    "first of them: jax.vmap(lambda key, params: rewrite(key, params, scheme))("
                    f"jax.random.split(key, {shape[0]}), params)"
                )
            raise InputError(f"{problem}: {advice}")
        if 0 in shape:
            raise InputError(f"{path} has shape {shape}, which is empty")
        found: dict[str, int] = {}
        given = {name: self.heads or count for name, count in heads.items()}
        known = {name: number for number, name in _FUSED.items()} | {
            name: count for name, count in given.items() if count is not None
        }
        if self.joined:
            found = self._part_sizes(path, shape, {**beside, **given})
            known[self.joined] = sum(found[letter] for letter in self.joined)
        for group, size in zip(groups, shape, strict=True):
            names = group.strip("()").split()
            if names == ["1"]:
                if size != 1:
                    raise InputError(f"{problem}: axis 1 has size {size}")
                continue
            if len(names) > 1 or names == [self.joined]:
                found |= {name: known[name] for name in names if name in known}
            open_names = [name for name in names if name not in found]
            if len(open_names) > 1:
                raise InputError(f"{path} stores its heads flattened: give num_heads")
            product = math.prod(found[name] for name in names if name in found)
            if size % product or (not open_names and size != product):
                grouped = "g" in names and given["g"] != given["h"]
                count = f"num_kv_heads {given['g']}" if grouped else f"num_heads {given['h']}"
                problem = f"{count} does not divide"
                if self.joined in names:
                    parts = (f"{_GIVEN.get(x, x)} {found[x]}" for x in dict.fromkeys(self.joined))
                    problem = f"{' and '.join(parts)} do not fit"
                advice = f"; {GROUPED_ADVICE}" if "three" in names else ""
                raise InputError(f"{problem} the {size} columns of {path}{advice}")
            if "three" in names and given["g"] not in (None, given["h"]):
                raise InputError(
                    f"num_kv_heads {given['g']}, but {path} has as many heads of key as of query "
                    f"by its layout {self.layout!r}; {GROUPED_ADVICE}"
                )
            found |= dict.fromkeys(open_names, size // product)
        return found

    def _part_sizes(
        self, path: str, shape: tuple[int, ...], known: Mapping[str, int | None]
    ) -> dict[str, int]:
        """The size of each part of a joined axis; one that isn't known is what the others leave."""
        found = {x: size for x in self.joined if (size := known.get(x)) is not None}
        missing = [x for x in dict.fromkeys(self.joined) if x not in found]
        if any(x in _GIVEN for x in missing):
            raise InputError(
                f"{path} stores the heads of query, key and value along one axis: give "
                f"{' and '.join(_GIVEN.values())}"
            )
        if len(missing) > 1:
            raise InputError(
                f"{path} stores {self._sum} along one axis, and no leaf beside it shows "
                f"{' or '.join(missing)}"
            )
        for x in missing:
            size, times = shape[_groups(self.stored).index(self.joined)], self.joined.count(x)
            rest = size - sum(found.get(other, 0) for other in self.joined)
            if rest < times or rest % times:
                others = " and ".join(f"{name} {number}" for name, number in found.items())
                raise InputError(f"{path} has {size} columns, which are not {self._sum}: {others}")
            found[x] = rest // times
        return found


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One role of one leaf of a tree.

    Attributes:
        index: of the leaf among the tree's leaves.
        path: of the leaf.
        role: one of the rule's roles.
        rule: the rule that describes the leaf.
        shape: the stored shape.
        sizes: the size of each axis; or, if the shape doesn't fit the rule, the error to raise
            when the leaf is used.
    """

    index: int
    path: str
    role: str
    rule: Rule
    shape: tuple[int, ...]
    sizes: dict[str, int] | InputError

    @property
    def fits(self) -> bool:
        """Whether the stored shape fits the rule."""
        return not isinstance(self.sizes, InputError)

    def check(self) -> None:
        """Raise InputError if the stored shape doesn't fit the rule."""
        if isinstance(self.sizes, InputError):
            raise self.sizes

    @property
    def layers(self) -> int | None:
        """Number of layers stacked in the leaf, or None."""
        return self._sizes.get("l")

    @property
    def canonical_shape(self) -> tuple[int, ...]:
        """Shape of the role's canonical array in one layer."""
        return tuple(self._sizes[axis] for axis in self.rule.axes(self.role).split())

    @property
    def axes(self) -> dict[str, int]:
        """Sizes of the canonical axes by their names in `ROLES`."""
        return dict(zip(ROLES[self.role].split(), self.canonical_shape, strict=True))

    def unpack(self, stored: Any) -> Any:
        """The role's canonical array, [...] or [L, ...], from the stored leaf."""
        whole = self._rearranged(self._gathered(stored), self.rule.stored, self._canonical)
        part = whole if self._part is None else whole[self._part]
        # In float32, as √K would round values of fewer digits.
        return part.astype(np.float32) * self._divisor if self._divisor != 1 else part

    def pack(self, canonical: Any, stored: Any, layers: Sequence[int] | None = None) -> Any:
        """The stored leaf with the role's canonical array put in.

        Args:
            canonical: [...], or [L, ...] for stacked layers.
            stored: the leaf.
            layers: of a stack, those that `canonical` has; the others stay as stored. All, if None.
        """
        if self._divisor != 1:
            canonical = canonical / self._divisor
        if self._part is not None or layers is not None:
            whole = self._rearranged(self._gathered(stored), self.rule.stored, self._canonical)
            if layers is not None:
                before = whole if self._part is None else whole[self._part]
                canonical = _set_part(before, (np.array(layers),), canonical)
            canonical = canonical if self._part is None else _set_part(whole, self._part, canonical)
        return self._rearranged(canonical, self._canonical, self.rule.stored)

    def _gathered(self, stored: Any) -> Any:
        """The stored leaf without shards, which an explicit mesh lets nobody reshape or slice."""
        if isinstance(stored, jax.core.Tracer):
            mesh = jax.typeof(stored).sharding.mesh
            return reshard(stored, NamedSharding(mesh, P())) if mesh.explicit_axes else stored
        # What other processes hold can't be brought here; there all of them compute the same.
        here = isinstance(stored, jax.Array) and (
            stored.is_fully_addressable or stored.is_fully_replicated
        )
        return np.asarray(stored) if here else stored

    def _rearranged(self, array: Any, before: str, after: str) -> Any:
        named = {name: size for name, size in self._sizes.items() if name in _names(before)}
        return einops.rearrange(array, f"{before} -> {after}", **named)

    @property
    def layout(self) -> str:
        """The stored axes, and the factor of a query that is stored divided by √K."""
        return f"{self.rule.layout}{' / √K' if self._divisor != 1 else ''}"

    @property
    def _divisor(self) -> np.float32 | int:
        """√K for the query of a model that doesn't divide logits by it, else 1."""
        if not (self.rule.undivided and self.role in ("query", "query_bias")):
            return 1
        return np.float32(math.sqrt(self._sizes["k"]))

    @property
    def _part(self) -> tuple[slice, ...] | None:
        """Where the role's heads are in the leaf, if it shares the leaf with other roles."""
        rule = self.rule
        if len(rule.parts) == 1:
            return None
        axis, at = rule.part_axis(self.role), rule.parts.index(self.role)
        start = sum(self._sizes[letter] for letter in (rule.joined or axis * at)[:at])
        leading = rule.stacked + rule.axes(self.role).split().index(axis)
        return (*[slice(None)] * leading, slice(start, start + self._sizes[axis]))

    @property
    def _canonical(self) -> str:
        return self.rule.canonical(self.role)

    @property
    def _sizes(self) -> dict[str, int]:
        if isinstance(self.sizes, InputError):
            raise self.sizes
        return self.sizes


def find_rule(
    path: str, rules: Iterable[Rule], among: Collection[str] = ()
) -> tuple[Rule, str] | None:
    """The first of some rules that describes a leaf, and the path of its block.

    Args:
        path: of the leaf.
        rules: in their order.
        among: the paths of all leaves, for rules that need another leaf beside theirs.

    >>> query = Rule("query/kernel", "query", "d h k")
    >>> find_rule("block_0/attention/query/kernel", [query]) == (query, "block_0/attention")
    True
    """
    found = ((rule, rule.block(path)) for rule in rules)
    return next(
        (
            (rule, block)
            for rule, block in found
            if block is not None and (not rule.beside or _has(among, block, rule.beside))
        ),
        None,
    )


def _has(paths: Collection[str], block: str, name: str) -> bool:
    prefix = (block, name) if block else (name,)
    return "/".join(prefix) in paths or ".".join(prefix).replace("/", ".") in paths


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    """`re` itself keeps 512 expressions, fewer than the zoo has."""
    return re.compile(expression)


def _search(expression: str, path: str) -> re.Match[str] | None:
    """Where an expression is found in a path or in a flat name, whose "." are its "/"."""
    pattern = _compiled(expression)
    if (found := pattern.search(path)) or "." not in path:
        return found
    return pattern.search(path.replace(".", "/"))


def _set_part(whole: Any, part: tuple[slice | np.ndarray, ...], array: Any) -> Any:
    if isinstance(whole, jax.Array) or isinstance(array, jax.core.Tracer):
        whole = jax.numpy.asarray(whole)
        return whole.at[part].set(jax.numpy.asarray(array, whole.dtype))
    whole = np.array(whole)
    whole[part] = array
    return whole


def _head_axis(axes: Sequence[str]) -> str:
    """The axis of heads, h or g; "" if there is none."""
    return next((axis for axis in axes if axis in ("h", "g")), "")


def _names(layout: str) -> list[str]:
    return re.findall(r"[a-z]+", layout)


def _groups(layout: str) -> list[str]:
    return re.findall(r"\([^)]*\)|\S+", layout)


def _check_expression(field: str, text: str) -> None:
    try:
        re.compile(text)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise InputError(f"{field} {text!r} is not a regular expression: {error}") from error


CROSS_ATTENTION = r"(?i:cross_?att|encoder_attn|enc_?dec_?att|encoder_decoder_att|xattn|maphead)"
"""Common names of attention whose queries come from other tokens than its keys. The papers have
studied self-attention alone."""


def attention_rules(
    *,
    query: str = "query",
    key: str = "key",
    value: str = "value",
    out: str = "out",
    fused: str = "",
    grouped: bool = False,
    flat: bool = False,
    transposed: bool = False,
    stacked: bool = False,
    kernel: str = "kernel",
    bias: str = "bias",
    undivided: bool = False,
    within: str = "",
    exclude: str = CROSS_ATTENTION,
) -> tuple[Rule, ...]:
    """The rules of one kind of attention, with its biases, from the names of its four layers.

    Args:
        query, key, value, out: names of the layers, as regular expressions.
        fused: the name of one layer that holds query, key and value, in that order, instead of
            `query`, `key` and `value`.
        grouped: whether that layer holds its H query, G key and G value heads along one axis, as it
            must where there are fewer heads of key and value: give `num_heads` and `num_kv_heads`.
        flat: whether kernels store heads flattened, [D, H K] and [H K, D], and `num_heads` tells
            them apart; otherwise [D, H, K] and [H, K, D].
        transposed: whether kernels are stored output first, as in PyTorch and Equinox.
        stacked: whether layers are stacked along the first axis, as by `nn.scan`.
        kernel, bias: names of the leaves of a layer.
        undivided: whether the model doesn't divide logits by √K: see `Rule`.
        within, exclude: of `Rule`. Leaves with a common name of cross-attention are left out
            unless another `exclude` is given.

    Returns:
        Rules for `rewrite`, `plan`, `blocks` and `fit`; add `mlp_rules` for the MLP and
        others for the position.

    Example:
        >>> for rule in attention_rules(fused="qkv", out="proj", flat=True):
        ...     print(rule.path, rule.layout)
        qkv/kernel d (three h k)
        proj/kernel (h k) d
        qkv/bias (three h k)
        proj/bias d
    """

    def layout(*axes: str) -> str:
        order = axes[::-1] if transposed else axes
        return f"{'l ' * stacked}{' '.join(order)}"

    def heads(axes: str) -> str:
        return f"({axes})" if flat else axes

    layers: dict[str, tuple[str | tuple[str, ...], str]] = {
        query: ("query", "h k"),
        key: ("key", "g k"),
        value: ("value", "g k"),
    }
    if fused:
        axes = f"{_GROUPED} k" if grouped else "three h k"
        layers = {fused: (("query", "key", "value"), axes)}
    rule = functools.partial(Rule, within=within, exclude=exclude, undivided=undivided)
    named = layers.items()
    return (
        *(
            rule(f"{name}/{kernel}", roles, layout("d", heads(axes)))
            for name, (roles, axes) in named
        ),
        rule(f"{out}/{kernel}", "out", layout(heads("h k"), "d")),
        *(rule(f"{name}/{bias}", _biases(r), layout(heads(axes))) for name, (r, axes) in named),
        rule(f"{out}/{bias}", "out_bias", layout("d")),
    )


def mlp_rules(
    *,
    first: str = "fc1",
    second: str = "fc2",
    transposed: bool = False,
    stacked: bool = False,
    kernel: str = "kernel",
    bias: str = "bias",
    within: str = "",
) -> tuple[Rule, ...]:
    """The rules of an MLP of two layers, with its biases, from the names of the layers.

    Args:
        first, second: names of the layers, as regular expressions.
        transposed: whether kernels are stored output first, as in PyTorch and Equinox.
        stacked: whether layers are stacked along the first axis, as by `nn.scan`.
        kernel, bias: names of the leaves of a layer.
        within: of `Rule`.

    Returns:
        Rules for `rewrite`, `plan`, `blocks` and `fit`. One of the two layers without the other
        beside it is an error, as it is not an MLP: a classifier may have the same name.

    Example:
        >>> for rule in mlp_rules(first="up", second="down"):
        ...     print(rule.path, rule.role, rule.layout)
        up/kernel mlp_in d f
        up/bias mlp_in_bias f
        down/kernel mlp_out f d
        down/bias mlp_out_bias d
    """
    leaves = (
        (f"{first}/{kernel}", "mlp_in", "d f", "mlp_out"),
        (f"{first}/{bias}", "mlp_in_bias", "f", "mlp_out"),
        (f"{second}/{kernel}", "mlp_out", "f d", "mlp_in"),
        (f"{second}/{bias}", "mlp_out_bias", "d", "mlp_in"),
    )
    return tuple(
        Rule(
            path,
            role,
            f"{'l ' * stacked}{axes[::-1] if transposed else axes}",
            within=within,
            partner=partner,
        )
        for path, role, axes, partner in leaves
    )


def _biases(roles: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(roles, str):
        return f"{roles}_bias"
    return tuple(f"{role}_bias" for role in roles)


def _within(blocks: str, rules: tuple[Rule, ...], stacked: bool = False) -> tuple[Rule, ...]:
    """The rules for these blocks alone; of stacked layers, if so."""
    return tuple(
        dataclasses.replace(rule, within=blocks, layout=f"{'l ' * stacked}{rule.layout}")
        for rule in rules
    )


_LOGIT_BIASES = (
    Rule(r"relative_bias", "relative_bias", "r h"),
    Rule(r"shared_bias", "shared_bias", "u v"),
)
_MIXERS = (
    Rule(r"token_mixing/fc1/kernel", "token_in", "n f"),
    Rule(r"token_mixing/fc1/bias", "token_in_bias", "f"),
    Rule(r"token_mixing/fc2/kernel", "token_out", "f n"),
    Rule(r"token_mixing/fc2/bias", "token_out_bias", "n"),
    Rule(r"depthwise/kernel", "depthwise", "u v 1 c"),
    Rule(r"depthwise/bias", "depthwise_bias", "c"),
)
_STATE_SPACE = (
    Rule(r"b/kernel", "ssm_b", "d s"),
    Rule(r"c/kernel", "ssm_c", "d s"),
    Rule(r"conv/kernel", "ssm_conv", "u c"),
    Rule(r"conv/bias", "ssm_conv_bias", "c"),
    Rule(r"A_log", "ssm_a", "m"),
    Rule(r"dt_bias", "ssm_dt_bias", "m"),
    Rule(r"norm/scale", "ssm_norm", "i"),
)
FLAX = (
    # Our models with `scan=True`.
    *attention_rules(stacked=True, within="blocks/attention$", exclude=""),
    *_within("blocks/attention$", _LOGIT_BIASES, stacked=True),
    *mlp_rules(stacked=True, within="blocks/mlp$"),
    *_within("blocks$", _MIXERS, stacked=True),
    *_within("blocks/mixer$", _STATE_SPACE, stacked=True),
    *_MIXERS,
    *_within(r"block_\d+/mixer$", _STATE_SPACE),
    *attention_rules(),
    *_LOGIT_BIASES,
    *mlp_rules(),
    Rule(r"pos(ition)?_embed(ding)?", "position", "1 n d"),
)
"""Stock Flax attention, Linen and NNX; MLPs, token mixing, depthwise filters, state space layers,
relative position biases and position table of our own models."""
