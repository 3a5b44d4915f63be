"""What `rewrite` would write, computed from shapes alone."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mimetic_jax import zoo
from mimetic_jax.base import table
from mimetic_jax.base.errors import InputError
from mimetic_jax.rules import paths
from mimetic_jax.schemes import Context, Scheme
from mimetic_jax.schemes.base import depth_dependence, name_of
from mimetic_jax.tree import class_token, refusal
from mimetic_jax.tree.around import families
from mimetic_jax.tree.draw import check_draws, in_order
from mimetic_jax.tree.match import covered
from mimetic_jax.tree.tree import Tree

_SHOWN = 12
"""Layers whose names a plan prints."""


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
            note = zoo.FAMILIES[self.table].note if self.table in zoo.FAMILIES else ""
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


def planned(tree: Tree, schemes: Sequence[Scheme], given: Context) -> Plan:
    """The plan of some schemes, applied from left to right."""
    writes, depth, notes = list[Write](), [], list[str]()
    copies: Mapping[int, str] = {}
    for match in in_order(tree, schemes):
        scheme, seen = match.scheme, match.tree
        notes += refusal.notes(match)
        copies = seen.notes
        for block, _ in match.blocks[:1]:
            with contextlib.suppress(InputError):  # of a note about values, in a tree of shapes
                notes.append(scheme.note(seen.view(block, seen.layers(block)[0]), given))
        read = check_draws(match, given)
        drawn = [leaf for _, leaves in match.blocks for leaf in leaves]
        lost = {(leaf.path, leaf.role) for leaf in drawn if leaf.role not in read}
        writes = [write for write in writes if (write.path, write.role) not in lost]
        writes += [
            Write(name_of(scheme), leaf.path, leaf.role, leaf.shape, leaf.layout) for leaf in drawn
        ]
        if what := depth_dependence(scheme):
            blocks = [block for block, _ in match.blocks]
            layers = {*blocks}.union(
                paths.of_layer(block, layer)
                for block in blocks
                for layer in covered(seen, scheme, block)
            )
            for family in families(seen, blocks):
                depth.append((what, tuple(name for name in family if name in layers)))
    written = {write.path for write in writes}
    notes += [note for index, note in copies.items() if tree.paths[index] in written]
    notes.append(class_token.note(tree, schemes))
    return Plan(
        writes,
        untouched=tuple(
            path for path, shape in tree.shapes.items() if path not in written and len(shape) > 1
        ),
        depth=tuple(depth),
        table=zoo.name_of(tree.rules) or None,
        notes=tuple(filter(None, notes)),
    )
