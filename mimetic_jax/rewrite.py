"""The tree form: find the blocks of a parameter tree, read them, rewrite them by a scheme.

Rules match the path of a leaf to its role (`rules`), which is never guessed from its shape.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from mimetic_jax import paths, table, zoo
from mimetic_jax.errors import InputError, blaming
from mimetic_jax.host.cores import on_cores
from mimetic_jax.rules import FLAX, ROLES, Leaf, Rule
from mimetic_jax.schemes import Block, Context, Scheme, as_tuple
from mimetic_jax.schemes.base import (
    attention_kernels,
    depth_dependence,
    field_values,
    is_finite,
    roles_to_write,
)
from mimetic_jax.typed import shown
from mimetic_jax.weights.checks import check_dtype, check_key, counts, pair

_SHOWN = 12
"""Layers whose names a plan prints."""

# Common names of attention kernels. A kernel with such a name that no rule describes would silently
# keep its old initialization.
_ATTENTION_NAMES = re.compile(
    r"(^|/)(qkv|to_qkv|in_proj(_weight)?|c_attn|query_key_value|qkv_proj|[qkv]_proj|w[qkv])(/|$)"
)

_SAME_SIZES = (
    ("query", "query_bias", "hk"),
    ("key", "key_bias", "gk"),
    ("value", "value_bias", "gk"),
    ("query", "out", "h"),
    ("key", "value", "g"),
)
"""Axes that two roles of an attention layer share. (Those of a product are checked where it is
computed.)"""


@dataclasses.dataclass(frozen=True)
class Write:
    """One leaf that a scheme would overwrite (all layers of it, where they are stacked)."""

    scheme: str
    path: str
    role: str
    shape: tuple[int, ...]
    layout: str


class Plan(tuple[Write, ...]):
    """What `rewrite` would write; prints as a table with one line per kind of leaf.

    Attributes:
        untouched: paths of the matrices (and arrays of higher rank) that stay unchanged.
        depth: for each scheme that depends on depth, what does ("Mimetic.beta_qk") and the layers
            of each kind, from the first to the last.
    """

    untouched: tuple[str, ...]
    depth: tuple[tuple[str, tuple[str, ...]], ...]

    def __new__(
        cls,
        writes: Iterable[Write],
        untouched: Iterable[str] = (),
        depth: Iterable[tuple[str, tuple[str, ...]]] = (),
    ) -> Self:
        plan = super().__new__(cls, writes)
        plan.untouched, plan.depth = tuple(untouched), tuple(depth)
        return plan

    def __str__(self) -> str:
        kinds: dict[tuple[str, str, tuple[int, ...], str], list[str]] = defaultdict(list)
        for write in self:
            kinds[write.scheme, write.role, write.shape, write.layout].append(write.path)
        rows = [("scheme", "leaves", "path", "role", "shape", "layout")]
        for (scheme, role, shape, layout), written in kinds.items():
            for alike in paths.together(written):
                path = paths.summary(alike)
                rows.append((scheme, str(len(alike)), path, role, str(shape), layout))
        lines = table.aligned(rows)
        if self.untouched:
            unchanged = paths.together(self.untouched)
            kept = (f"{len(alike)} {paths.summary(alike)}" for alike in unchanged)
            lines.append(f"unchanged: {', '.join(kept)}")
        for what, layers in self.depth:
            first = layers if len(layers) <= _SHOWN else (*layers[:_SHOWN], "…", layers[-1])
            lines.append(f"{what} by depth: {', '.join(first)}")
        return "\n".join(lines)


def plan(
    params: Any,
    scheme: Scheme | tuple[Scheme, ...],
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
    grid: tuple[int, int] | None = None,
) -> Plan:
    """List what `rewrite` would write with the same arguments; reads shapes only.

    What `rewrite` refuses, `plan` refuses: it traces the draw of one layer of each kind, or of
    every layer where constants depend on depth. It doesn't see values of leaves that `rewrite`
    refuses, such as a position table of low rank.

    Args:
        params: a parameter tree, or one of `jax.ShapeDtypeStruct`.
        scheme: a scheme, or a tuple of schemes applied from left to right.
        num_heads: H, where kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; stock Flax names unless given.
        grid: (h, w) of the patches, where the position table isn't a square grid.

    Returns:
        A tuple of `Write`s. It prints as a table followed by the unchanged kernels, which shows at
        a glance whether the rules cover the whole tree.

    Raises:
        InputError: if a scheme finds nothing to write (the error lists the paths of the tree), a
            layout doesn't fit a shape, the tree has attention that no rule describes, or a scheme
            rejects its constants, the sizes or the grid.

    Example:
        >>> kernel = jax.ShapeDtypeStruct((8, 2, 4), jnp.float32)
        >>> params = {"attn": {"query": {"kernel": kernel}, "key": {"kernel": kernel}}}
        >>> from mimetic_jax.schemes import Mimetic
        >>> [write.path for write in plan(params, Mimetic())]
        ['attn/key/kernel', 'attn/query/kernel']
    """
    tree = _Tree(params, rules, num_heads, num_kv_heads)
    writes, depth = [], []
    for one in as_tuple(scheme):
        found = tree.checked(one, grid)
        writes += [
            Write(_name(one), leaf.path, leaf.role, leaf.shape, leaf.rule.layout)
            for _, leaves in found
            for leaf in leaves
        ]
        if what := depth_dependence(one):
            depth += [(what, names) for names in tree.families([block for block, _ in found])]
    written = {write.path for write in writes}
    untouched = [
        path
        for path, leaf in zip(tree.paths, tree.leaves, strict=True)
        if path not in written and len(np.shape(leaf)) > 1
    ]
    return Plan(writes, untouched, depth)


def rewrite(
    key: jax.Array,
    params: Any,
    scheme: Scheme | tuple[Scheme, ...],
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
    grid: tuple[int, int] | None = None,
) -> Any:
    """Initialize parameters by a scheme where it applies; all others stay unchanged.

    Pure: a new tree with the same structure, dtypes, shardings and kinds of arrays (NumPy's are
    C-contiguous). Each block draws from `block_key(key, path)`, so that adding or removing a layer
    changes no other. Concrete trees are computed on the host in bounded chunks; under `jit`, `vmap`
    or `eval_shape` the computation stays in the program. There, over automatic mesh axes,
    `out_shardings` decides.

    Inside `shard_map` every device would draw its shard as if it were the whole leaf, from the same
    key: where heads are sharded, value and out of all shards together would have several times
    their β. So leaves that vary over an axis of the mesh are an error unless the key varies over it
    too, as where each device has a model of its own. With `check_vma=False`, and in `pmap` over a
    named axis, JAX doesn't know what varies, and any leaf is an error.

    Args:
        key: a `jax.random` key.
        params: a parameter tree: nested dictionaries, Flax boxes, NNX states.
        scheme: a scheme, or a tuple of schemes applied from left to right.
        num_heads: H, where kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; stock Flax names unless given.
        grid: (h, w) of the patches, where the position table isn't a square grid.

    Returns:
        A tree like `params`.

    Raises:
        InputError: as `plan`; if values aren't finite in a leaf's dtype, a leaf has no values (a
            shape, a deleted array) or is a shard; or if the processes that share the tree drew
            different weights.

    Example:
        >>> import flax.linen as nn
        >>> from mimetic_jax.schemes import Mimetic
        >>> layer = nn.MultiHeadDotProductAttention(num_heads=2)
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 4, 16)))["params"]
        >>> params = rewrite(jax.random.key(1), params, Mimetic())
        >>> value, out = params["value"]["kernel"], params["out"]["kernel"]
        >>> bool((value.reshape(16, 16) @ out.reshape(16, 16)).diagonal().mean() < -0.3)
        True
    """
    with _without_mesh():
        key = _local(key)
        for one in as_tuple(scheme):
            params = _Tree(params, rules, num_heads, num_kv_heads).rewritten(key, one, grid)
    return params


def block_key(key: jax.Array, path: str, layer: int | None = None) -> jax.Array:
    """The key of one block: it depends on the block's path, not on the rest of the tree.

    Args:
        key: the key given to `rewrite`.
        path: the block's path, such as "block_3/attention"; "" for the root.
        layer: index of the layer in a block that stacks its layers, else None.

    Example:
        >>> same = block_key(jax.random.key(0), "block_0/attention")
        >>> bool((same == block_key(jax.random.key(0), "block_0/attention")).all())
        True
    """
    check_key(key)
    key = jax.random.fold_in(key, zlib.crc32(path.encode()))
    return key if layer is None else jax.random.fold_in(key, layer)


def blocks(
    params: Any,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
) -> list[tuple[str, int | None, Block]]:
    """Read the arrays of every block by role, in canonical form whatever the storage.

    This is how schemes see a tree: fused kernels split, heads unflattened, one layer at a time.
    Nothing is computed until an array is read.

    Args:
        params: a parameter tree.
        num_heads: H, where kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; stock Flax names unless given.

    Returns:
        (path, layer, block) per block, or per layer of a block that stacks its layers (else layer
        is None), sorted by path with block_10 after block_9. `block` maps roles to float32 arrays
        (shapes: see `mimetic_jax.schemes`), and `block_key(key, path, layer)` is its key.

    Raises:
        InputError: if the tree has attention that no rule describes or whose layout doesn't fit;
            when an array is read, if the leaf has no values (a shape, a deleted array).

    Example:
        >>> params = {"blocks": {"attention": {"query": {"kernel": jnp.ones((2, 8, 4, 2))}}}}
        >>> [(path, layer, block["query"].shape) for path, layer, block in blocks(params)]
        [('blocks/attention', 0, (8, 4, 2)), ('blocks/attention', 1, (8, 4, 2))]
    """
    return _Tree(params, rules, num_heads, num_kv_heads).views()


class _Tree:
    """A parameter tree and, by rules, its blocks: leaves by role."""

    def __init__(
        self,
        params: Any,
        rules: Sequence[Rule] | None,
        num_heads: int | None,
        num_kv_heads: int | None,
    ) -> None:
        self.rules: Sequence[Rule] = FLAX if rules is None else rules
        if not isinstance(self.rules, Sequence) or not all(
            isinstance(rule, Rule) for rule in self.rules
        ):
            raise InputError(f"rules {shown(rules)} are not a sequence of Rule")
        given = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        counts(**{name: count for name, count in given.items() if count is not None})
        self.heads = {"h": num_heads, "g": num_kv_heads or num_heads}
        named, self.treedef = paths.flatten(params)
        self.leaves = [leaf for _, leaf in named]
        self.paths = [path for path, _ in named]
        self.blocks: dict[str, dict[str, Leaf]] = defaultdict(dict)
        self.undescribed: list[str] = []
        for index, (path, value) in enumerate(named):
            described = ((rule, rule.block(path)) for rule in self.rules)
            rule, block = next(((r, b) for r, b in described if b is not None), (None, ""))
            if rule:
                self._claim(index, block, rule, np.shape(value))
            elif _ATTENTION_NAMES.search(path) and not any(r.leaves_out(path) for r in self.rules):
                self.undescribed.append(path)

    def _claim(self, index: int, block: str, rule: Rule, shape: tuple[int, ...]) -> None:
        path = self.paths[index]
        if re.search(r"(^|/)opt_state/", path):
            raise InputError(
                f"{path} is an optimizer's moment, not a weight: give the parameters alone, such "
                "as state.params"
            )
        sizes: dict[str, int] | InputError
        try:
            sizes = rule.sizes(path, shape, self.heads)
        except InputError as error:  # fine for a Dense that only shares a name with attention
            sizes = error
        for role in rule.roles:
            if rival := self.blocks[block].get(role):
                raise InputError(f"{rival.path} and {path} both claim role {role}")
            self.blocks[block][role] = Leaf(index, path, role, rule, shape, sizes)

    def matches(self, scheme: Scheme) -> list[tuple[str, list[Leaf]]]:
        """Every block that the scheme writes, with the leaves to write."""
        found = []
        for block in sorted(self.blocks, key=paths.natural):
            try:
                with blaming(block):
                    roles = roles_to_write(scheme, self.blocks[block])
            except InputError as error:  # half of the names may be those of stock layers
                raise InputError(f"{error}{self._hint()}") from error
            if roles:
                leaves = [self.blocks[block][role] for role in sorted(roles)]
                for leaf in leaves:
                    leaf.check()
                    check_dtype(_dtype(self.leaves[leaf.index]), f"{leaf.path}: dtype")
                    self._check_partner(block, leaf)
                self._check_heads(block, roles)
                found.append((block, leaves))
        written = {leaf.role for _, leaves in found for leaf in leaves}
        if not found or "query" in written or "value" in written:
            self._check_described()
        if not found:
            self._refuse(scheme)
        _check_keys_differ([block for block, _ in found])
        return found

    def _check_partner(self, block: str, leaf: Leaf) -> None:
        partner = leaf.rule.partner
        if partner and partner not in self.blocks[block]:
            raise InputError(
                f"{leaf.path} has the name of {leaf.role}, but no leaf beside it that of its "
                f"{partner}: name the blocks to write with within=…, or give "
                f"Rule(path, {leaf.role!r}, layout)"
            )

    def _check_heads(self, block: str, written: frozenset[str]) -> None:
        """Raise InputError if the leaves of an attention layer disagree about its heads."""
        leaves = {role: leaf for role, leaf in self.blocks[block].items() if leaf.fits}
        if not attention_kernels(written):
            return
        for wide, narrow in (("query", "key"), ("out", "value")):
            if {wide, narrow} <= written and leaves[narrow].rule.flattens("g"):
                sizes = [leaves[role].axes["k"] for role in (wide, narrow)]
                if sizes[0] != sizes[1]:
                    raise InputError(
                        f"{leaves[wide].path} has heads of width {sizes[0]}, {leaves[narrow].path} "
                        f"of width {sizes[1]}: give num_kv_heads, the number of heads of key and "
                        "value"
                    )
        for first, second, shared in _SAME_SIZES:
            if {first, second} <= leaves.keys():
                one, other = leaves[first], leaves[second]
                if any(one.axes[axis] != other.axes[axis] for axis in shared):
                    raise InputError(
                        f"{one.path} of shape {one.shape} and {other.path} of shape {other.shape} "
                        f"have different heads by their layouts {one.rule.layout!r} and "
                        f"{other.rule.layout!r}{_hint_of_scan(leaves.values())}"
                    )

    def checked(self, scheme: Scheme, grid: tuple[int, int] | None) -> list[tuple[str, list[Leaf]]]:
        """`matches`, after raising what the draw would raise; computes nothing."""
        found = self.matches(scheme)
        key = jax.eval_shape(lambda: jax.random.key(0))
        leaves = [jax.ShapeDtypeStruct(np.shape(x), _dtype(x)) for x in self.leaves]
        for block, layer in self._samples(scheme, [block for block, _ in found]):
            one = functools.partial(self._one_layer, scheme, grid, block, layer)
            jax.eval_shape(one, key, leaves)
        return found

    def _samples(self, scheme: Scheme, blocks: Sequence[str]) -> Iterable[tuple[str, int | None]]:
        """A layer of each kind; every layer, if the scheme may depend on depth."""
        every = [(block, layer) for block in blocks for layer in self._layers(block)]
        if depth_dependence(scheme):
            return every
        kinds: dict[Any, tuple[str, int | None]] = {}
        for block, layer in every:
            described = self.blocks[block].values()
            shapes = sorted((leaf.role, leaf.shape, leaf.rule.layout) for leaf in described)
            kinds.setdefault((paths.family(block), *shapes), (block, layer))
        return kinds.values()

    def _one_layer(
        self,
        scheme: Scheme,
        grid: tuple[int, int] | None,
        block: str,
        layer: int | None,
        key: jax.Array,
        leaves: list[Any],
    ) -> dict[str, Any]:
        """The draw of one layer, as if these were the leaves."""
        tree = copy.copy(self)
        tree.leaves = leaves
        return tree._drawn(key, scheme, *tree._position(grid), block, [layer])

    def families(self, blocks: Sequence[str]) -> list[tuple[str, ...]]:
        """The names of the layers of each kind, in the order of depth."""
        names: dict[str, list[str]] = defaultdict(list)
        for block in blocks:
            stacked = [layer for layer in self._layers(block) if layer is not None]
            names[paths.family(block)] += [f"{block}[{layer}]" for layer in stacked] or [block]
        return [tuple(layers) for layers in names.values() if len(layers) > 1]

    def views(self) -> list[tuple[str, int | None, Block]]:
        """What `blocks` returns."""
        self._check_described()
        found: list[tuple[str, int | None, Block]] = []
        for block in sorted(self.blocks, key=paths.natural):
            leaves = self.blocks[block]
            kernels = attention_kernels(frozenset(leaves))
            for role in sorted(kernels):
                leaves[role].check()
            self._check_heads(block, kernels)
            if any(leaf.fits for leaf in leaves.values()):
                found += [(block, layer, self._view(block, layer)) for layer in self._layers(block)]
        return found

    def _check_described(self) -> None:
        if self.undescribed:
            raise InputError(
                f"no rule describes {self.undescribed[0]} (and {len(self.undescribed) - 1} more)"
                + (
                    self._hint()
                    or ": attention that is fused or named in another way needs rules=(Rule(path, "
                    "role, layout), …) or rules=attention_rules(…), and what is no attention "
                    "Rule(path, ())"
                )
            )

    def _refuse(self, scheme: Scheme) -> None:
        """Raise InputError for a scheme that no block has the roles of."""
        seen = ", ".join(self.paths[:8]) + (", …" if len(self.paths) > 8 else "")
        message = f"{_name(scheme)} matches nothing among the paths {seen or '(none)'}"
        if hint := self._hint(scheme):
            raise InputError(message + hint)
        every = sorted(scheme.writes(frozenset(ROLES)))
        kernels = [role for role in every if not role.endswith("_bias")]
        raise InputError(
            f"{message}: no rule gives one of them the role {' or '.join(kernels or every)}; put one "
            "in front, rules=(Rule(path, role, layout), *rules)"
        )

    def _hint(self, scheme: Scheme | None = None) -> str:
        """The table of the zoo to use instead of these rules, if the scheme finds something then."""
        name = zoo.detect(jax.tree.unflatten(self.treedef, self.leaves))
        if name is None or tuple(self.rules) == zoo.TABLES[name]:
            return ""
        if scheme is not None and not self._finds(scheme, zoo.TABLES[name]):
            return ""
        return f": it looks like zoo.{name}, give rules=zoo.{name}"

    def _finds(self, scheme: Scheme, rules: Sequence[Rule]) -> bool:
        """Whether the scheme would write anything by other rules."""
        params = jax.tree.unflatten(self.treedef, self.leaves)
        try:
            blocks = _Tree(params, rules, self.heads["h"], self.heads["g"]).blocks
            return any(roles_to_write(scheme, roles) for roles in blocks.values())
        except InputError:
            return False

    def rewritten(self, key: jax.Array, scheme: Scheme, grid: tuple[int, int] | None) -> Any:
        """The parameters, with the scheme's draws in every block that it writes."""
        found = self.matches(scheme)
        for leaf in (leaf for _, leaves in found for leaf in leaves):
            _check_whole(self._stored(leaf), key, leaf.path)
        blocks = [block for block, _ in found]
        position, grid = self._position(grid)

        def draw(block: str) -> dict[str, Any]:
            return self._drawn(key, scheme, position, grid, block, self._layers(block))

        inputs = (key, *self.leaves, *field_values(scheme))
        concrete = not any(isinstance(x, jax.core.Tracer) for x in inputs)
        shared = concrete and any(
            isinstance(leaf, jax.Array) and not leaf.is_fully_addressable for leaf in self.leaves
        )
        leaves, checksum = list(self.leaves), 0
        # Tracers must stay in the thread of their trace.
        for block, drawn in zip(blocks, (on_cores if concrete else map)(draw, blocks), strict=True):
            for role, array in drawn.items():
                leaf = self.blocks[block][role]
                # Several roles may share a leaf: each is put into the result of the one before.
                stored = leaves[leaf.index]
                if shared:
                    checksum = zlib.crc32(np.asarray(array).tobytes(), checksum)
                leaves[leaf.index] = _placed_like(leaf.pack(array, stored), stored)
        if shared:
            _check_agreement(checksum)
        return jax.tree.unflatten(self.treedef, leaves)

    def _drawn(
        self,
        key: jax.Array,
        scheme: Scheme,
        position: jax.Array | None,
        grid: tuple[int, int] | None,
        block: str,
        layers: list[int | None],
    ) -> dict[str, Any]:
        """The new canonical arrays of a block's layers by role, [...] or [L, ...]."""
        drawn = []
        for layer in layers:
            index, count = self._rank(block, layer)
            context = Context(index, count, position, grid)
            with blaming(block):
                view = self._view(block, layer)
                drawn.append(scheme(block_key(key, block, layer), view, context))
        joined = {}
        for role in sorted(drawn[0]):
            arrays: list[Any] = [new[role] for new in drawn]
            traced = any(isinstance(array, jax.core.Tracer) for array in arrays)
            arrays = arrays if traced else [np.asarray(array) for array in arrays]
            array = arrays[0] if layers == [None] else (jnp if traced else np).stack(arrays)
            joined[role] = array if traced else self._cast(self.blocks[block][role], array)
        return joined

    def _cast(self, leaf: Leaf, array: np.ndarray) -> np.ndarray:
        """A drawn array in the dtype of its leaf."""
        dtype = _dtype(self.leaves[leaf.index])
        with np.errstate(over="ignore"):
            cast = array.astype(dtype, copy=False)
        if not is_finite(cast):
            largest = np.abs(array).max()
            raise InputError(f"{leaf.path}: dtype {dtype} can't hold weights of up to {largest:.3g}")
        return cast

    def _view(self, block: str, layer: int | None) -> Block:
        """A block as schemes see it: one layer of it, where layers are stacked."""
        leaves = {role: leaf for role, leaf in self.blocks[block].items() if leaf.fits}
        shapes = {role: leaf.canonical_shape for role, leaf in leaves.items()}
        return Block(shapes, lambda role: self._canonical(leaves[role], layer))

    def _canonical(self, leaf: Leaf, layer: int | None) -> jax.Array:
        array = leaf.unpack(self._stored(leaf))
        return jnp.asarray(array if layer is None else array[layer], jnp.float32)

    def _stored(self, leaf: Leaf) -> Any:
        """The stored array of a leaf."""
        value = self.leaves[leaf.index]
        if isinstance(value, jax.ShapeDtypeStruct):
            raise InputError(f"{leaf.path} is a shape without values")
        if _is_deleted(value):
            raise InputError(f"{leaf.path} is a deleted array, as donation leaves it")
        return value

    def _layers(self, block: str) -> list[int | None]:
        """The layers that a block stacks; [None] if it doesn't stack layers."""
        stacks = {leaf.layers for leaf in self.blocks[block].values() if leaf.fits} or {None}
        if len(stacks) > 1:
            raise InputError(f"{block}: some of its leaves stack layers and some don't")
        stack = stacks.pop()
        return [None] if stack is None else list(range(stack))

    def _rank(self, block: str, layer: int | None) -> tuple[int, int]:
        """A layer's index among the blocks of its family, and their number.

        A block that stacks its layers counts as that many: the stages of a Swin are one family.
        """
        name = paths.family(block)
        family = [other for other in self.blocks if paths.family(other) == name]
        counts = {other: len(self._layers(other)) for other in sorted(family, key=paths.natural)}
        before = itertools.takewhile(lambda other: other != block, counts)
        return sum(counts[other] for other in before) + (layer or 0), sum(counts.values())

    def _position(
        self, grid: tuple[int, int] | None
    ) -> tuple[jax.Array | None, tuple[int, int] | None]:
        """The position table's rows for the patch grid, and the grid; None if there isn't one."""
        grid = None if grid is None else pair("the grid", grid)
        tables = [leaves["position"] for leaves in self.blocks.values() if "position" in leaves]
        if len(tables) != 1 or not tables[0].fits:
            return None, grid
        count, _ = tables[0].canonical_shape
        grid = grid or _square(count) or _square(count - 1)
        table = self._canonical(tables[0], None)
        return (None if grid is None else table[count - grid[0] * grid[1] :]), grid


def _dtype(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def _placed_like(array: Any, leaf: Any) -> Any:
    """The array with the dtype, kind (NumPy or JAX) and sharding of the leaf that it replaces."""
    if isinstance(array, np.ndarray):
        # Rearranged axes are views in another order, which some file formats store as they are.
        array = array.astype(leaf.dtype, order="C")
    else:
        array = array.astype(leaf.dtype)
    if isinstance(array, jax.core.Tracer):
        sharding = jax.typeof(leaf).sharding
        return jax.sharding.reshard(array, sharding) if sharding.mesh.explicit_axes else array
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return array if isinstance(leaf, np.ndarray) else jnp.asarray(array)
    if not leaf.committed:
        return jnp.asarray(array)
    # Each process and device takes its own shards of the same host array.
    return jax.make_array_from_callback(array.shape, leaf.sharding, lambda index: array[index])


def _check_agreement(checksum: int) -> None:
    """Raise InputError unless all processes drew the same: each keeps only its own shards."""
    everyone = multihost_utils.process_allgather(np.uint32(checksum))
    differing = np.flatnonzero(everyone != everyone[0])
    if differing.size:
        raise InputError(
            f"process {', '.join(map(str, differing))} drew other weights than process 0, among "
            f"{len(everyone)} processes: they need the same key, packages and kind of CPU"
        )


def _check_keys_differ(blocks: Sequence[str]) -> None:
    """Raise InputError for two blocks that would draw from one key."""
    seen: dict[int, str] = {}
    for block in blocks:
        other = seen.setdefault(zlib.crc32(block.encode()), block)
        if other != block:
            raise InputError(
                f"{other} and {block} would get identical weights, since the CRC-32 of their paths "
                "is the same: rename one"
            )


def _check_whole(value: Any, key: jax.Array, path: str) -> None:
    """Raise InputError for a leaf that may be the shard of a device inside `shard_map`."""
    if not isinstance(value, jax.core.Tracer):
        return
    mesh = jax.typeof(value).sharding.mesh
    # Over a `pmap` without a name nothing can be summed: each device has a whole model.
    bound = {
        axis
        for axis in mesh.manual_axes
        if mesh.shape[axis] > 1 and not str(axis).startswith(("<axis ", "_internal_pmap"))
    }
    if any(_varying(jax.lax.axis_index(axis)) for axis in bound):  # JAX keeps track
        bound &= _varying(value) - _varying(key)
    if bound:
        raise InputError(
            f"{path} may be a shard over the mesh axis {', '.join(sorted(map(str, bound)))}, and "
            "every device would draw it from the same key as if it were whole: call rewrite outside "
            "of shard_map and pmap, or give each device a model and a key of its own under "
            "shard_map(..., check_vma=True)"
        )


def _varying(value: Any) -> frozenset[Any]:
    """The manual mesh axes over which a value differs, as far as JAX keeps track."""
    aval: Any = jax.typeof(value)
    if hasattr(aval, "vma"):  # before JAX 0.10
        return frozenset(aval.vma)
    return frozenset(aval.manual_axis_type.varying)


@contextlib.contextmanager
def _without_mesh() -> Iterator[None]:
    """Outside of any mesh of `jax.set_mesh`, over whose devices all new arrays would be spread.

    Programs for several devices round differently.
    """
    if jax.sharding.get_abstract_mesh().empty:
        yield
        return
    try:
        context = jax.set_mesh(jax.sharding.Mesh(np.empty((), object), ()))
    except ValueError:  # inside somebody's jit, the mesh is part of the program
        yield
        return
    with context:
        yield


def _is_deleted(value: Any) -> bool:
    concrete = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
    return concrete and value.is_deleted()


def _hint_of_scan(leaves: Iterable[Leaf]) -> str:
    """Advice for layers of `nn.scan` with flattened heads, whose kernels have as many axes as those
    of one layer with heads apart."""
    shapes = {(leaf.shape[0], len(leaf.shape) + leaf.role.endswith("_bias")) for leaf in leaves}
    if len(shapes) > 1:
        return ""
    return ": stacked layers with flattened heads need rules=attention_rules(stacked=True, flat=True)"


def _local(key: jax.Array) -> jax.Array:
    """The key on this process's default device; with a key on a mesh, draws would run there."""
    check_key(key)
    typed = jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    data = jax.random.key_data(key) if typed else jnp.copy(key)
    if isinstance(data, jax.core.Tracer):  # also for a concrete key inside somebody's jit
        return key
    # Raw keys are of the caller's default implementation, which other threads don't know.
    local = jnp.asarray(np.asarray(data))
    return jax.random.wrap_key_data(local, impl=jax.random.key_impl(key))


def _square(count: int) -> tuple[int, int] | None:
    side = round(max(count, 0) ** 0.5)
    return (side, side) if side > 0 and side * side == count else None


def _name(scheme: Scheme) -> str:
    inner: Callable[[Any], Any] = getattr(scheme, "like", None)  # type: ignore[assignment]
    name = type(scheme).__name__
    return f"{name}({_name(inner)})" if isinstance(inner, Scheme) else name
