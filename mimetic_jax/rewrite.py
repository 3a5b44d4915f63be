"""The tree form: find the blocks of a parameter tree, read them, rewrite them by a scheme.

Rules over a leaf's path say what it is (`rules`); it is never guessed from its shape.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from mimetic_jax import paths, table, zoo
from mimetic_jax.errors import InputError, blaming, check_counts, check_pair
from mimetic_jax.host.cores import on_cores
from mimetic_jax.rules import FLAX, Leaf, Rule
from mimetic_jax.schemes import Block, Context, Scheme, as_tuple
from mimetic_jax.schemes.base import attention_kernels, field_values
from mimetic_jax.weights.keys import check_key

# Common names of attention kernels. A kernel with such a name that no rule describes would silently
# keep its old initialization.
_ATTENTION_NAMES = re.compile(
    r"(^|/)(qkv|to_qkv|in_proj(_weight)?|c_attn|query_key_value|qkv_proj|[qkv]_proj|w[qkv])(/|$)"
)


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
    """

    untouched: tuple[str, ...]

    def __new__(cls, writes: Iterable[Write], untouched: Iterable[str] = ()) -> Self:
        plan = super().__new__(cls, writes)
        plan.untouched = tuple(untouched)
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
        return "\n".join(lines)


def plan(
    params: Any,
    scheme: Scheme | tuple[Scheme, ...],
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] = FLAX,
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
    writes = [
        Write(_name(one), leaf.path, leaf.role, leaf.shape, leaf.rule.layout)
        for one in as_tuple(scheme)
        for _, leaves in tree.checked(one, grid)
        for leaf in leaves
    ]
    written = {write.path for write in writes}
    untouched = [
        path
        for path, leaf in zip(tree.paths, tree.leaves, strict=True)
        if path not in written and len(np.shape(leaf)) > 1
    ]
    return Plan(writes, untouched)


def rewrite(
    key: jax.Array,
    params: Any,
    scheme: Scheme | tuple[Scheme, ...],
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] = FLAX,
    grid: tuple[int, int] | None = None,
) -> Any:
    """Initialize parameters by a scheme where it applies; all others stay unchanged.

    Pure: a new tree with the same structure, dtypes and shardings. Each block draws from
    `block_key(key, path)`, so that adding or removing a layer changes no other. Concrete trees
    are computed on the host in bounded chunks; under `jit`, `vmap` or `eval_shape` the computation
    stays in the program. There, over automatic mesh axes, `out_shardings` decides.

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
        InputError: as `plan`, or if the processes that share the tree drew different weights.

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
    rules: Sequence[Rule] = FLAX,
) -> list[tuple[str, int | None, Block]]:
    """The arrays of every block by role, in canonical form whatever the storage.

    This is how schemes see a tree: fused kernels apart, heads unflattened, one layer at a time.
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
        InputError: if the tree has attention that no rule describes or whose layout doesn't fit.

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
        rules: Sequence[Rule],
        num_heads: int | None,
        num_kv_heads: int | None,
    ) -> None:
        if not isinstance(rules, Sequence) or not all(isinstance(rule, Rule) for rule in rules):
            raise InputError(f"rules {repr(rules)[:80]} are not a sequence of Rule")
        given = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        check_counts(**{name: count for name, count in given.items() if count is not None})
        named, self.treedef = paths.flatten(params)
        self.leaves = [leaf for _, leaf in named]
        self.paths = [path for path, _ in named]
        self.blocks: dict[str, dict[str, Leaf]] = defaultdict(dict)
        heads = {"h": num_heads, "g": num_kv_heads or num_heads}
        self.undescribed: list[str] = []
        for index, (path, value) in enumerate(named):
            described = ((rule, rule.block(path)) for rule in rules)
            rule, block = next(((r, b) for r, b in described if b is not None), (None, ""))
            if rule:
                self._claim(index, block, rule, np.shape(value), heads)
            elif _ATTENTION_NAMES.search(path) and not any(r.leaves_out(path) for r in rules):
                self.undescribed.append(path)

    def _claim(
        self,
        index: int,
        block: str,
        rule: Rule,
        shape: tuple[int, ...],
        heads: Mapping[str, int | None],
    ) -> None:
        path = self.paths[index]
        if re.search(r"(^|/)opt_state/", path):
            raise InputError(
                f"{path} is an optimizer's moment, not a weight: give the parameters alone, such "
                "as state.params"
            )
        sizes: dict[str, int] | InputError
        try:
            sizes = rule.sizes(path, shape, heads)
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
                    roles = scheme.writes(frozenset(self.blocks[block]))
            except InputError as error:  # half of the names may be those of stock layers
                raise InputError(f"{error}{self._hint()}") from error
            if roles:
                leaves = [self.blocks[block][role] for role in sorted(roles)]
                for leaf in leaves:
                    leaf.check()
                    self._check_dtype(leaf)
                self._check_widths(block, roles)
                found.append((block, leaves))
        written = {leaf.role for _, leaves in found for leaf in leaves}
        if not found or "query" in written or "value" in written:
            self._check_described()
        if not found:
            seen = ", ".join(self.paths[:8]) + (", …" if len(self.paths) > 8 else "")
            raise InputError(
                f"{_name(scheme)} matches nothing among the paths {seen or '(none)'}{self._hint()}"
            )
        return found

    def _check_dtype(self, leaf: Leaf) -> None:
        dtype = _dtype(self.leaves[leaf.index])
        if not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(
                f"{leaf.path} has dtype {dtype}, in which no initial weights can be stored"
            )

    def _check_widths(self, block: str, roles: frozenset[str]) -> None:
        """Raise InputError if fewer heads of key and value were read as many narrow ones."""
        for pair in (("query", "key"), ("out", "value")):
            if not set(pair) <= roles:
                continue
            wide, narrow = (self.blocks[block][role] for role in pair)
            if narrow.rule.flattens("g") and wide.head_width != narrow.head_width:
                raise InputError(
                    f"{wide.path} has heads of width {wide.head_width}, {narrow.path} of width "
                    f"{narrow.head_width}: give num_kv_heads, the number of heads of key and value"
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
        """A layer of each kind; every layer, if the scheme's constants may depend on depth."""
        every = [(block, layer) for block in blocks for layer in self._layers(block)]
        if any(callable(value) or isinstance(value, tuple) for value in field_values(scheme)):
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

    def views(self) -> list[tuple[str, int | None, Block]]:
        """What `blocks` returns."""
        self._check_described()
        found: list[tuple[str, int | None, Block]] = []
        for block in sorted(self.blocks, key=paths.natural):
            leaves = self.blocks[block]
            for role in sorted(attention_kernels(frozenset(leaves))):
                leaves[role].check()
            self._check_widths(block, attention_kernels(frozenset(leaves)))
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

    def _hint(self) -> str:
        name = zoo.detect(jax.tree.unflatten(self.treedef, self.leaves))
        return f": it looks like zoo.{name}, give rules=zoo.{name}" if name else ""

    def rewritten(self, key: jax.Array, scheme: Scheme, grid: tuple[int, int] | None) -> Any:
        """The parameters, with the scheme's draws in every block that it writes."""
        blocks = [block for block, _ in self.matches(scheme)]
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
            joined[role] = arrays[0] if layers == [None] else (jnp if traced else np).stack(arrays)
        return joined

    def _view(self, block: str, layer: int | None) -> Block:
        """A block as schemes see it: one layer of it, where layers are stacked."""
        leaves = {role: leaf for role, leaf in self.blocks[block].items() if leaf.fits}
        shapes = {role: leaf.canonical_shape for role, leaf in leaves.items()}
        return Block(shapes, lambda role: self._canonical(leaves[role], layer))

    def _canonical(self, leaf: Leaf, layer: int | None) -> jax.Array:
        array = leaf.unpack(self.leaves[leaf.index])
        return jnp.asarray(array if layer is None else array[layer], jnp.float32)

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
        tables = [leaves["position"] for leaves in self.blocks.values() if "position" in leaves]
        if len(tables) != 1 or not tables[0].fits:
            return None, grid
        count, _ = tables[0].canonical_shape
        if grid is not None:
            check_pair("the grid", grid)
        grid = grid or _square(count) or _square(count - 1)
        table = self._canonical(tables[0], None)
        return (None if grid is None else table[count - grid[0] * grid[1] :]), grid


def _dtype(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def _placed_like(array: Any, leaf: Any) -> Any:
    """The array with the dtype, kind (NumPy or JAX) and sharding of the leaf that it replaces."""
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
