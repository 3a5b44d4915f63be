"""What a scheme writes of a tree: leaves by role, and the list of checks that they pass."""

from __future__ import annotations

from collections.abc import Callable

from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import roles_to_write
from mimetic_jax.tree import advice, checks, lacking
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
    """The same after all checks.

    Raises:
        InputError: if a check refuses it, as it does if there is no match.
    """
    try:
        matches = match(tree, scheme)
    except InputError as error:  # half of the names may be those of stock layers
        raise InputError(f"{error}{advice.hint(tree)}") from error
    for check in CHECKS:
        check(tree, scheme, matches)
    return matches
