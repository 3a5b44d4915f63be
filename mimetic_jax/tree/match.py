"""What a scheme writes of a tree: leaves by role, and the list of checks that they pass."""

from __future__ import annotations

from collections.abc import Callable

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import depth_dependence, name_of, roles_to_write
from mimetic_jax.tree import advice, checks, lacking
from mimetic_jax.tree.around import depth
from mimetic_jax.tree.tree import Matches, Tree

CHECKS: tuple[Callable[[Tree, Scheme, Matches], None], ...] = (
    checks.check_leaves,
    checks.check_given_heads,
    checks.check_one_width,
    checks.check_all_attention,
    checks.check_any,
    lacking.check,
    checks.check_roles,
    checks.check_stacked,
    checks.check_one_per_layer,
    checks.check_alike_per_layer,
    checks.check_exact,
)
"""What refuses a match, in the order in which errors explain most."""


def match(tree: Tree, scheme: Scheme) -> Matches:
    """Every block that a scheme writes, sorted, with the leaves to write."""
    matches = []
    for block in sorted(tree.blocks, key=paths.natural_order):
        with blaming(block):
            roles = roles_to_write(scheme, tree.blocks[block])
        if roles:
            leaves = (tree.stored_in(block, role) for role in sorted(roles))
            matches.append((block, [leaf for copies in leaves for leaf in copies]))
    return matches


def checked_match(tree: Tree, scheme: Scheme) -> Matches:
    """Those of which the scheme draws a layer, after all checks.

    Raises:
        InputError: if a check refuses them, as it does if there is no match, or no layer is left.
    """
    try:
        matches = match(tree, scheme)
    except InputError as error:  # half of the names may be those of stock layers
        raise InputError(f"{error}{advice.hint(tree)}") from error
    for check in CHECKS:
        check(tree, scheme, matches)
    if not (drawn := [match for match in matches if covered(tree, scheme, match[0])]):
        blocks = [block for block, _ in matches]
        others = f" (and {len(blocks) - 3} more)" if len(blocks) > 3 else ""
        raise InputError(
            f"{name_of(scheme)} skips every layer: {', '.join(blocks[:3])}{others} stay unchanged"
        )
    return drawn


def covered(tree: Tree, scheme: Scheme, block: str) -> list[int | None]:
    """The layers of a block that a scheme draws: [None], if it doesn't stack layers."""
    layers = tree.layers(block)
    if not depth_dependence(scheme):
        return layers
    return [layer for layer in layers if scheme.covers(*depth(tree, block, layer))]
