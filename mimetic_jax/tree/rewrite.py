"""The tree form: a scheme's draws, listed by `plan` and put into a parameter tree by `rewrite`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base import table
from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.host.cores import on_cores
from mimetic_jax.rules import paths
from mimetic_jax.rules.rule import Rule
from mimetic_jax.schemes import Block, Context, Scheme, as_tuple
from mimetic_jax.schemes.base import depth_dependence, field_values, name_of
from mimetic_jax.tree import lacking
from mimetic_jax.tree.advice import asked_by
from mimetic_jax.tree.layers import network
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.placement import (
    blank,
    check_agreement,
    check_whole,
    is_shared,
    local_key,
    placed_like,
    without_mesh,
)
from mimetic_jax.tree.tree import Tree, dtype_of
from mimetic_jax.weights.checks import check_key, in_dtype

_Matches: TypeAlias = list[tuple[str, list[Leaf]]]
"""Blocks by their paths, with the leaves that a scheme writes there."""
_SHOWN = 12
"""Layers whose names a plan prints."""
_SAMPLED = 1024
"""Numbers by which a copy is told."""


@dataclasses.dataclass(frozen=True)
class Write:
    """One leaf that a scheme would overwrite (all layers of it, if they are stacked).

    The layout of a query that takes the factor 1/√K ends in " / √K".
    """

    scheme: str
    path: str
    role: str
    shape: tuple[int, ...]
    layout: str


class Plan(table.Listing[Write]):
    """What `rewrite` would write; prints as a table with one line per kind of leaf.

    What a later scheme overwrites without having read it isn't listed.

    Attributes:
        untouched: paths of the matrices (and arrays of higher rank) that stay unchanged.
        depth: for each scheme that depends on depth, what does ("Mimetic.beta_qk") and the layers
            of each kind that it writes, from the first to the last.
        table: the name of the rules in `zoo`, if they are a table of it.
        notes: what else to know of what is written, in sentences.
    """

    untouched: tuple[str, ...] = ()
    depth: tuple[tuple[str, tuple[str, ...]], ...] = ()
    table: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds: dict[tuple[str, str, tuple[int, ...], str], list[str]] = defaultdict(list)
        for write in self:
            kinds[write.scheme, write.role, write.shape, write.layout].append(write.path)
        rows, named = [("leaves", "path", "role", "shape", "layout")], [""]
        for (scheme, role, shape, layout), written in kinds.items():
            for alike in paths.group_alike(written):
                rows.append((str(len(alike)), paths.summary(alike), role, str(shape), layout))
                named.append(scheme)
        lines: list[str] = []
        if self.table:
            note = zoo.NOTES.get(self.table)
            lines.append(f"rules: zoo.{self.table}" + (f" ({note})" if note else ""))
        for row, scheme, before in zip(table.aligned(rows), named, ["", *named], strict=False):
            if scheme != before:
                lines.append(f"{scheme}:")
            lines.append(row)
        if self.untouched:
            unchanged = paths.group_alike(self.untouched)
            kept = (f"{len(alike)} {paths.summary(alike)}" for alike in unchanged)
            lines.append(f"unchanged: {', '.join(kept)}")
        for what, layers in self.depth:
            first = layers if len(layers) <= _SHOWN else (*layers[:_SHOWN], "…", layers[-1])
            lines.append(f"{what} by depth: {', '.join(first)}")
        lines += self.notes
        return "\n".join(map(table.paragraph, lines))


def plan(
    params: Any,
    scheme: Scheme | Sequence[Scheme],
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
    grid: tuple[int, int] | None = None,
    counts: Any = None,
    covariance: Any = None,
) -> Plan:
    """List what `rewrite` would write with the same arguments; computes nothing.

    What `rewrite` refuses, `plan` refuses: it traces the draw of one layer of each kind, or of
    every layer if constants depend on depth. It doesn't see values of leaves that `rewrite`
    refuses, such as a position table of low rank. Of embeddings it sees the scale, and whether an
    output layer is equal to them.

    Args:
        params: a parameter tree, or one of `jax.ShapeDtypeStruct`.
        scheme: a scheme, or a tuple or list of schemes applied from left to right.
        num_heads: H, if kernels store heads flattened.
        num_kv_heads: G, likewise; H unless given.
        rules: what leaves are; unless given, stock Flax names or the table of `zoo` that fits.
        grid: (h, w) of the patches, if the position table isn't a square grid.
        counts: how often tokens stand near each other in the text that the model will be trained
            on, of `weights.cooccurrence`: for `Cooccurrence` and `Unigram`.
        covariance: of the patches of the images that it will be trained on, of
            `weights.patch_covariance`: for `Whitened`.

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
    given = Context(grid=grid, counts=counts, covariance=covariance)
    return _planned(Tree(params, rules, num_heads, num_kv_heads), as_tuple(scheme), given)


def _planned(tree: Tree, schemes: Sequence[Scheme], given: Context) -> Plan:
    tree.asked = asked_by(schemes)
    writes, depth, notes = list[Write](), [], list[str]()
    for one, seen, found in _in_order(tree, schemes, given):
        notes += lacking.notes(seen, one)
        for block, _ in found[:1]:
            with contextlib.suppress(InputError):  # of a note about values, in a tree of shapes
                notes.append(one.note(seen.view(block, seen.layers(block)[0]), given))
        tree.read.clear()
        layers = _layers_to_write(seen, one, given, [block for block, _ in found])
        lost = {
            (leaf.path, leaf.role)
            for block, leaves in found
            for leaf in leaves
            if layers[block] == seen.layers(block) and leaf.role not in tree.read
        }
        writes = [write for write in writes if (write.path, write.role) not in lost]
        writes += [
            Write(name_of(one), leaf.path, leaf.role, leaf.shape, leaf.layout)
            for block, leaves in found
            if layers[block]
            for leaf in leaves
        ]
        if what := depth_dependence(one):
            drawn = {paths.of_layer(block, layer) for block in layers for layer in layers[block]}
            for family in seen.families([block for block, _ in found]):
                depth.append((what, tuple(name for name in family if name in drawn)))
    written = {write.path for write in writes}
    notes += [note for index, note in tree.notes.items() if tree.paths[index] in written]
    untouched = (
        path
        for path, leaf in zip(tree.paths, tree.leaves, strict=True)
        if path not in written and len(np.shape(leaf)) > 1
    )
    return Plan(
        writes,
        untouched=tuple(untouched),
        depth=tuple(depth),
        table=zoo.table_name(tree.rules),
        notes=tuple(filter(None, notes)),
    )


def rewrite(
    key: Any,
    params: Any,
    scheme: Scheme | Sequence[Scheme],
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
    grid: tuple[int, int] | None = None,
    counts: Any = None,
    covariance: Any = None,
) -> Any:
    """Initialize parameters by a scheme where it applies; all others stay unchanged.

    Pure: a new tree with the same structure, dtypes, shardings and kinds of arrays (NumPy's are
    C-contiguous). Each block draws from `block_key(key, path)`, so that adding or removing a layer
    changes no other. Concrete trees are computed on the host in bounded chunks; under `jit`, `vmap`
    or `eval_shape` the computation stays in the program. There, over automatic mesh axes,
    `out_shardings` decides.

    The same key gives the same kernels under `jit` and eagerly, and on every processor, to
    rounding. If they must be equal bit for bit, draw them in the same way.

    Inside `shard_map` every device would draw its shard as if it were the whole leaf, from the same
    key: if heads are sharded, value and out of all shards together would have several times
    their β. So leaves that vary over an axis of the mesh are an error unless the key varies over it
    too, as when each device has a model of its own. With `check_vma=False`, and in `pmap` over a
    named axis, JAX doesn't know what varies, and any leaf is an error.

    Args:
        key: a `jax.random` key, or `flax.nnx.Rngs`, from which the next key of `params` is taken.
        params: a parameter tree: nested dictionaries, Flax boxes, NNX states and modules.
        scheme, num_heads, num_kv_heads, rules, grid, counts, covariance: as for `plan`.

    Returns:
        A tree like `params`.

    Raises:
        InputError: as `plan`; if values aren't finite in a leaf's dtype, a leaf has no values (a
            shape, a deleted array) or is a shard; if one part of the tree is a copy of another, as
            a teacher of its student; or if the processes that share the tree drew
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
    tree = Tree(params, rules, num_heads, num_kv_heads)
    _write(tree, key, scheme, Context(grid=grid, counts=counts, covariance=covariance))
    return tree.params


def draw(
    key: Any,
    shapes: Any,
    scheme: Scheme | Sequence[Scheme],
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    rules: Sequence[Rule] | None = None,
    grid: tuple[int, int] | None = None,
    counts: Any = None,
    covariance: Any = None,
) -> Any:
    """Draw the leaves that a scheme writes, and no others, from their shapes.

    The arrays are those of `rewrite`, for a model whose parameters don't exist yet, or aren't to be
    in memory twice. Under `jit`, `out_shardings` may be the tree of all shardings; elsewhere each
    leaf gets the sharding that its shape has.

    Args:
        key: a `jax.random` key, or `flax.nnx.Rngs`, from which the next key of `params` is taken.
        shapes: a tree of `jax.ShapeDtypeStruct`, as of `jax.eval_shape`; leaves that the scheme
            reads, as `MeanShift` does, must be arrays.
        scheme, num_heads, num_kv_heads, rules, grid, counts, covariance: as for `plan`.

    Returns:
        A tree like `shapes` with None in place of the leaves that the scheme doesn't write.

    Raises:
        InputError: as `rewrite`; or if the scheme reads a leaf without values, or writes only a
            part of one, such as query and key of a kernel that holds value too.

    Example:
        >>> from mimetic_jax.schemes import Mimetic
        >>> kernel = jax.ShapeDtypeStruct((8, 2, 4), jnp.float32)
        >>> shapes = {"query": {"kernel": kernel}, "key": {"kernel": kernel}, "norm": kernel}
        >>> drawn = draw(jax.random.key(0), shapes, Mimetic())
        >>> drawn["query"]["kernel"].shape, drawn["norm"]
        ((8, 2, 4), None)
    """
    tree = Tree(shapes, rules, num_heads, num_kv_heads)
    given = Context(grid=grid, counts=counts, covariance=covariance)
    written = _write(tree, key, scheme, given, of_shapes=True)
    return tree.with_leaves(
        [leaf if index in written else None for index, leaf in enumerate(tree.leaves)]
    ).params


def block_key(key: jax.Array, path: str, layer: int | jax.Array | None = None) -> jax.Array:
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
    Beside attention and MLPs stand the gains and scales around them that the rules know, which no
    scheme writes. Nothing is computed until an array is read.

    Args:
        params: a parameter tree.
        num_heads, num_kv_heads, rules: as for `plan`.

    Returns:
        (path, layer, block) per block, or per layer of a block that stacks its layers (else layer
        is None), sorted by path with block_10 after block_9. `block` maps roles to float32 arrays
        (axes: see `mimetic_jax.rules.rule.ROLES`), and `block_key(key, path, layer)` is its key.

    Raises:
        InputError: if the tree has attention that no rule describes or whose layout doesn't fit;
            when an array is read, if the leaf has no values (a shape, a deleted array).

    Example:
        >>> params = {"blocks": {"attention": {"query": {"kernel": jnp.ones((2, 8, 4, 2))}}}}
        >>> [(path, layer, block["query"].shape) for path, layer, block in blocks(params)]
        [('blocks/attention', 0, (8, 4, 2)), ('blocks/attention', 1, (8, 4, 2))]
    """
    return Tree(params, rules, num_heads, num_kv_heads).views()


def rewrite_in_place(
    key: jax.Array,
    arrays: Mapping[str, np.ndarray],
    scheme: Scheme | Sequence[Scheme],
    *,
    grid: tuple[int, int] | None = None,
    counts: Any = None,
    covariance: Any = None,
    check: Callable[[Plan], None] = lambda planned: None,
    **options: Any,
) -> Plan:
    """Write what `rewrite` would give into NumPy's arrays, one block after the other.

    Arrays may be memory maps of a file, or share their memory with another library's: no more than
    the blocks that are being drawn are held beside them. What `plan` or `check` refuses is refused
    before anything is written; if it fails later, some blocks are written.
    """
    tree = Tree(dict(arrays), **options)
    given = Context(grid=grid, counts=counts, covariance=covariance)
    check(planned := _planned(tree, as_tuple(scheme), given))
    _write(tree, key, scheme, given, in_place=True)
    return planned


def _write(
    tree: Tree,
    key: Any,
    scheme: Scheme | Sequence[Scheme],
    given: Context,
    *,
    of_shapes: bool = False,
    in_place: bool = False,
) -> set[int]:
    """Put the draws of schemes in place of a tree's leaves, or into them; the indices of those."""
    written, schemes = set(), as_tuple(scheme)
    tree.asked = asked_by(schemes)
    with without_mesh():
        key = local_key(key)
        for one, seen, found in _in_order(tree, schemes, given):
            # No other block reads these leaves, and positions are read before the first draw.
            for index, leaf in _written(seen, key, one, given, found, of_shapes):
                if in_place:
                    tree.leaves[index][...] = leaf
                else:
                    tree.leaves[index] = leaf
                written.add(index)
    return written


def _in_order(
    tree: Tree, schemes: Iterable[Scheme], given: Context
) -> list[tuple[Scheme, Tree, _Matches]]:
    """Each scheme, the tree as it sees it, and the leaves that it writes there.

    Raises:
        InputError: if a scheme undoes what one before it has drawn.
    """
    found = []
    for one in schemes:
        seen = tree.seen_by(one)
        found.append((one, seen, seen.matches(one)))
    for earlier, later in itertools.combinations(found, 2):
        _check_not_undone(earlier, later, given, [name_of(one) for one, _, _ in found])
    return found


def _check_not_undone(
    earlier: tuple[Scheme, Tree, _Matches],
    later: tuple[Scheme, Tree, _Matches],
    given: Context,
    names: list[str],
) -> None:
    """Raise InputError if the later scheme undoes the earlier one in a layer."""
    both = earlier, later
    written = [{block: {x.role: x.path for x in leaves} for block, leaves in of} for *_, of in both]
    for block in written[0].keys() & written[1].keys():
        roles, others = (frozenset(each[block]) for each in written)
        if not (undone := earlier[0].undone_by(roles, others)):
            continue
        layers = [
            set(_layers_to_write(seen, scheme, given, [block])[block]) for scheme, seen, _ in both
        ]
        if layers[0].isdisjoint(layers[1]):
            continue
        first, second = (name_of(scheme) for scheme, *_ in both)
        names.insert(names.index(second) + 1, names[at := names.index(first)])
        del names[at]
        advice = f"give ({', '.join(names)}), in this order"
        if later[0].undone_by(others, roles):
            advice = "take one of the two"
        raise InputError(
            f"{second} writes {written[1][block][min(undone)]} after {first}, whose draw it would "
            f"undo: {advice}"
        )


def _written(
    tree: Tree,
    key: jax.Array,
    scheme: Scheme,
    given: Context,
    found: _Matches,
    of_shapes: bool,
) -> Iterator[tuple[int, Any]]:
    """Each leaf that the scheme writes, by its index, when its block is drawn."""
    for leaf in (leaf for _, leaves in found for leaf in leaves):
        if not tree.is_shape(leaf):
            check_whole(tree.stored(leaf), key, leaf.path)
        elif not of_shapes:
            raise InputError(
                f"{leaf.path} is a shape without values: draw(key, shapes, scheme) needs no values"
            )
    blocks = [block for block, _ in found]
    if of_shapes:
        _check_no_part(tree, scheme, given, found)
    around = _around(tree, scheme, given)

    inputs = (key, *tree.leaves, *field_values(scheme))
    concrete = not any(isinstance(x, jax.core.Tracer) for x in inputs)
    in_loop = not concrete and not depth_dependence(scheme)

    def draw(block: str) -> tuple[list[int | None], dict[str, Any]]:
        layers = tree.layers(block)
        drawn = _drawn_in_loop if in_loop and layers != [None] else _drawn
        return drawn(tree, key, scheme, around, block, layers)

    if concrete:
        _check_no_copies(tree, found)
    shared = concrete and any(map(is_shared, tree.leaves))
    checksum, nothing = 0, True
    # Tracers must stay in the thread of their trace.
    results = (on_cores if concrete else map)(draw, blocks)
    for block, (layers, drawn) in zip(blocks, results, strict=True):
        new: dict[int, Any] = {}
        nothing = nothing and not layers
        some = None if layers == tree.layers(block) else [x for x in layers if x is not None]
        for role, array in drawn.items():
            if shared:
                checksum = zlib.crc32(np.asarray(array).tobytes(), checksum)
            for leaf in tree.stored_in(block, role):
                # Several roles may share a leaf: each is put into the result of the one before.
                stored = new.get(leaf.index, tree.leaves[leaf.index])
                new[leaf.index] = placed_like(leaf.pack(array, blank(stored, array), some), stored)
        yield from new.items()
    if nothing:
        raise _all_skipped(scheme, blocks)
    if shared:
        check_agreement(checksum)


def _around(tree: Tree, scheme: Scheme, given: Context) -> Context:
    """What the scheme uses beside a block."""
    surveyed = scheme.survey(lambda: network(tree))
    return dataclasses.replace(tree.surroundings(given), surveyed=surveyed)


def _check_no_copies(tree: Tree, found: Sequence[tuple[str, Sequence[Leaf]]]) -> None:
    """Raise InputError if one part of the tree holds a copy of another: the draws would differ.

    A teacher starts as a copy of its student. Layers of one part may be equal to each other, and
    tables of positions in all.
    """
    seen: dict[tuple[Any, ...], str] = {}
    for block, leaves in found:
        leaf = max(leaves, key=lambda leaf: np.prod(leaf.shape))
        sample = _sample(tree.leaves[leaf.index])
        if leaf.role == "position" or sample is None or (sample == sample[0]).all():
            continue
        name = re.split("[/.]", block)[-1]
        other = seen.setdefault((name, leaf.role, leaf.shape, sample.tobytes()), block)
        if paths.family(other) != paths.family(block):
            raise InputError(
                f"{block} is a copy of {other}, and their draws would differ: rewrite one of the "
                "two, and copy it again; if they are equal by chance, rewrite both one by one"
            )


def _sample(stored: Any) -> np.ndarray | None:
    """The first numbers of an array here; None if it isn't all here, as a shape isn't."""
    if isinstance(stored, jax.ShapeDtypeStruct):
        return None
    if isinstance(stored, jax.Array):
        if not stored.is_fully_addressable:
            return None
        stored = stored.addressable_shards[0].data
    return np.asarray(stored).reshape(-1)[:_SAMPLED]


def _drawn(
    tree: Tree,
    key: jax.Array,
    scheme: Scheme,
    around: Context,
    block: str,
    layers: list[int | None],
) -> tuple[list[int | None], dict[str, Any]]:
    """Those of a block's layers that the scheme writes, and their new canonical arrays by role.

    An array is [...], or [L, ...] if layers are stacked.
    """
    found: dict[int | None, dict[str, jax.Array]] = {}
    for layer in layers:
        at, depth = tree.depth(block, layer)
        context = dataclasses.replace(around, layer=at, num_layers=depth)
        with blaming(block):
            view = tree.view(block, layer)
            if drawn := scheme(block_key(key, block, layer), view, context):
                found[layer] = drawn
    joined = {}
    for role in sorted({role for drawn in found.values() for role in drawn}):
        arrays: list[Any] = [drawn[role] for drawn in found.values()]
        traced = any(isinstance(array, jax.core.Tracer) for array in arrays)
        arrays = arrays if traced else [np.asarray(array) for array in arrays]
        array = arrays[0] if layers == [None] else (jnp if traced else np).stack(arrays)
        leaf = tree.blocks[block][role]
        joined[role] = array if traced else in_dtype(leaf.path, array, tree.dtype(leaf))
    return list(found), joined


def _drawn_in_loop(
    tree: Tree,
    key: jax.Array,
    scheme: Scheme,
    around: Context,
    block: str,
    layers: list[int | None],
) -> tuple[list[int | None], dict[str, Any]]:
    """As `_drawn`, for traced stacks: a program of one layer, whose size their number leaves."""
    first, depth = tree.depth(block, 0)

    def draw(layer: Any) -> dict[str, jax.Array]:
        # A scheme that read the layer without declaring that it does would fail here.
        context = dataclasses.replace(around, layer=first + layer, num_layers=depth)
        return scheme(block_key(key, block, layer), tree.view(block, layer), context)

    with blaming(block):
        return layers, jax.lax.map(draw, jnp.arange(len(layers)))


def _layers_to_write(
    tree: Tree, scheme: Scheme, given: Context, blocks: Sequence[str]
) -> dict[str, list[int | None]]:
    """The layers that a scheme writes in each of these blocks; computes nothing, but refuses what
    the draw would refuse."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    # As an argument of a program has: 32 bits, unless JAX has 64 enabled.
    canonical = functools.partial(jax.dtypes.canonicalize_dtype, allow_extended_dtype=True)
    leaves = [jax.ShapeDtypeStruct(np.shape(x), canonical(dtype_of(x))) for x in tree.leaves]
    written = {block: tree.layers(block) for block in blocks}

    def surveyed(leaves: list[Any]) -> Any:
        traced = tree.with_leaves(leaves)
        return scheme.survey(lambda: network(traced))

    def draw(block: str, layer: int | None, key: jax.Array, leaves: list[Any], found: Any) -> Any:
        traced = tree.with_leaves(leaves)
        around = dataclasses.replace(traced.surroundings(given), surveyed=found)
        return _drawn(traced, key, scheme, around, block, [layer])[1]

    found = jax.eval_shape(surveyed, leaves)
    for block, layer in _samples(tree, scheme, blocks):
        if not jax.eval_shape(functools.partial(draw, block, layer), key, leaves, found):
            written[block].remove(layer)
    if not any(written.values()):
        raise _all_skipped(scheme, blocks)
    return written


def _check_no_part(
    tree: Tree,
    scheme: Scheme,
    given: Context,
    found: Sequence[tuple[str, Sequence[Leaf]]],
) -> None:
    """Raise InputError if the scheme writes a part of a leaf without values."""
    blocks = [block for block, _ in found]
    layers: Mapping[str, Sequence[int | None]] = {}
    if depth_dependence(scheme) and any(tree.layers(block) != [None] for block in blocks):
        layers = _layers_to_write(tree, scheme, given, blocks)
    for block, leaves in found:
        roles = {leaf.role for leaf in leaves}
        some = layers.get(block, tree.layers(block)) != tree.layers(block)
        for leaf in leaves:
            if tree.is_shape(leaf) and (some or not roles.issuperset(leaf.rule.parts)):
                raise InputError(
                    f"{leaf.path} is a shape without values, and {name_of(scheme)} writes only "
                    f"{'some of its layers' if some else 'a part of it'}: give its values"
                )


def _all_skipped(scheme: Scheme, blocks: Sequence[str]) -> InputError:
    others = f" (and {len(blocks) - 3} more)" if len(blocks) > 3 else ""
    return InputError(
        f"{name_of(scheme)} skips every layer: {', '.join(blocks[:3])}{others} stay unchanged"
    )


def _samples(tree: Tree, scheme: Scheme, blocks: Sequence[str]) -> Iterable[tuple[str, int | None]]:
    """A layer of each kind; every layer, if the scheme may depend on depth."""
    every = [(block, layer) for block in blocks for layer in tree.layers(block)]
    if depth_dependence(scheme):
        return every
    kinds: dict[Any, tuple[str, int | None]] = {}
    for block, layer in every:
        described = tree.blocks[block].values()
        shapes = sorted((leaf.role, leaf.shape, leaf.rule.layout) for leaf in described)
        kinds.setdefault((paths.family(block), *shapes), (block, layer))
    return kinds.values()
