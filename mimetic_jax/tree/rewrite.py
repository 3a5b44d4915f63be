"""The tree form: a scheme's draws, listed by `plan` and put into a parameter tree by `rewrite`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes import Block, Scheme, as_tuple
from mimetic_jax.tree import class_token, placement
from mimetic_jax.tree.draw import block_key
from mimetic_jax.tree.label import label
from mimetic_jax.tree.layers import views
from mimetic_jax.tree.options import Options, TreeOptions, of_tree, split
from mimetic_jax.tree.plan import Plan, planned
from mimetic_jax.tree.write import write

__all__ = ["Plan", "block_key", "blocks", "plan", "rewrite", "rewrite_in_place"]


def plan(params: Any, scheme: Scheme | Sequence[Scheme], **options: Unpack[Options]) -> Plan:
    """List what `rewrite` would write with the same arguments; computes nothing.

    What `rewrite` refuses, `plan` refuses: it traces the draw of one layer of each kind, or of
    every layer if constants depend on depth. It doesn't see values of leaves that `rewrite`
    refuses, such as a position table of low rank. Of embeddings it sees the scale, and whether an
    output layer is equal to them.

    Args:
        params: a parameter tree, or one of `jax.ShapeDtypeStruct`.
        scheme: a scheme, or a tuple or list of schemes applied from left to right.
        **options: what the tree is and what its model is for: `Options`.

    Returns:
        A tuple of `Write`s. It prints as a table followed by the unchanged kernels, which shows at
        a glance whether the rules cover the whole tree.

    Raises:
        InputError: if a scheme finds nothing to write (the error lists the paths of the tree), a
            layout doesn't fit a shape, the tree has attention or MLPs that a scheme writes and no
            rule describes (the error has the rules), a scheme rejects its constants, the sizes
            or the grid, or no scheme uses an option that is given.

    Example:
        >>> kernel = jax.ShapeDtypeStruct((8, 2, 4), np.float32)
        >>> params = {"attn": {"query": {"kernel": kernel}, "key": {"kernel": kernel}}}
        >>> from mimetic_jax.schemes import Mimetic
        >>> [write.path for write in plan(params, Mimetic())]
        ['attn/key/kernel', 'attn/query/kernel']
    """
    _check_unshared(params)
    described, given = split(options, schemes := as_tuple(scheme))
    return planned(label(params, **described), schemes, given)


def rewrite(
    key: Any, params: Any, scheme: Scheme | Sequence[Scheme], **options: Unpack[Options]
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
        scheme, **options: as for `plan`.

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
        >>> params = layer.init(jax.random.key(0), np.ones((1, 4, 16)))["params"]
        >>> params = rewrite(jax.random.key(1), params, Mimetic())
        >>> value, out = params["value"]["kernel"], params["out"]["kernel"]
        >>> bool((value.reshape(16, 16) @ out.reshape(16, 16)).diagonal().mean() < -0.3)
        True
    """
    key = placement.one_key(key)  # `rewrite(params, key)` fails here
    _check_unshared(params)
    described, given = split(options, schemes := as_tuple(scheme))
    tree = label(params, **described)
    class_token.warn(tree, schemes)
    write(tree, key, schemes, given)
    return tree.params


def _check_unshared(params: Any) -> None:
    """Raise InputError for a module of NNX that has a variable under several names: as a tree it
    has each of them apart."""
    nnx = sys.modules.get("flax.nnx")  # who has a module of it has imported it
    if nnx is None or not isinstance(params, nnx.Module):
        return
    found = jax.tree.leaves(params, is_leaf=lambda node: isinstance(node, nnx.Variable))
    if len({*map(id, found)}) < len(found):
        raise InputError(
            f"{type(params).__name__} has a part under several names, which would be drawn apart: "
            "mimetic_jax.nnx.initialize(module, key, scheme) draws it once"
        )


def blocks(params: Any, **options: Unpack[TreeOptions]) -> list[tuple[str, int | None, Block]]:
    """Read the arrays of every block by role, in canonical form whatever the storage.

    This is how schemes see a tree: fused kernels split, heads unflattened, one layer at a time.
    Beside attention and MLPs stand the gains and scales around them that the rules know, which no
    scheme writes. Nothing is computed until an array is read.

    Args:
        params: a parameter tree.
        **options: num_heads, num_kv_heads and rules of `Options`.

    Returns:
        (path, layer, block) per block, or per layer of a block that stacks its layers (else layer
        is None), sorted by path with block_10 after block_9. `block` maps roles to float32 arrays
        (axes: see `mimetic_jax.rules.rule.ROLES`), and `block_key(key, path, layer)` is its key.

    Raises:
        InputError: if the tree has attention that no rule describes or whose layout doesn't fit;
            when an array is read, if the leaf has no values (a shape, a deleted array).

    Example:
        >>> params = {"blocks": {"attention": {"query": {"kernel": np.ones((2, 8, 4, 2))}}}}
        >>> [(path, layer, block["query"].shape) for path, layer, block in blocks(params)]
        [('blocks/attention', 0, (8, 4, 2)), ('blocks/attention', 1, (8, 4, 2))]
    """
    return views(label(params, **of_tree(options)))


def rewrite_in_place(
    key: jax.Array,
    arrays: Mapping[str, np.ndarray],
    scheme: Scheme | Sequence[Scheme],
    *,
    check: Callable[[Plan], None] = lambda plan: None,
    **options: Unpack[Options],
) -> Plan:
    """Write what `rewrite` would give into NumPy's arrays, one block after the other.

    Arrays may be memory maps of a file, or share their memory with another library's: no more than
    the blocks that are being drawn are held beside them. What `plan` or `check` refuses raises
    InputError before anything is written; if it fails later, some blocks are written.
    """
    described, given = split(options, schemes := as_tuple(scheme))
    tree = label(dict(arrays), **described)
    check(writes := planned(tree, schemes, given))
    class_token.warn(tree, schemes)
    write(tree, key, schemes, given, in_place=True)
    return writes
