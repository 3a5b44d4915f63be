"""The blocks of a parameter tree: its leaves by role, read in canonical form.

Rules match the path of a leaf to its role (`rules`), which is never guessed from its shape.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.typed import shown
from mimetic_jax.rules import names, paths
from mimetic_jax.rules.rule import ATTENTION, FIRST_LAYER, ROLES, Rule, find_rule, search
from mimetic_jax.schemes import Block, Context, Scheme
from mimetic_jax.schemes.base import attention_kernels, roles_to_write
from mimetic_jax.tree import advice, checks, lacking
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.tied import tie
from mimetic_jax.weights.checks import check_dtype, counts, pair
from mimetic_jax.weights.position import square_grid

_KINDS = {"attention": frozenset(ATTENTION), "mlp": frozenset(("mlp_in", "mlp_out"))}
_BIAS = re.compile(r"(bias|(^|[/.])(beta|b))$")

# A third kernel of an MLP, beside the two that a rule describes. Schemes for MLPs are about two
# kernels with a function between them, so a gated MLP stays as it is, and `check` alone reads it.
_GATE = re.compile(r"(^|[/.])(up|gate)(_proj)?(?=[/.])")
_MLP = frozenset({"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"})


class Tree:
    """A parameter tree and, by rules, its blocks.

    Attributes:
        leaves, paths: arrays or shapes, and their paths, in the order of the tree; `indices` has
            the place of each path.
        rules: the rules that describe leaves; `found_rules`, if they weren't given.
        heads: the numbers of heads, "h" and "g"; `grouped`, if that of key and value was given.
        blocks: the described leaves by the path of their block and by role.
        held: the paths of all leaves by what they are in.
        scaled: the path of the scale of each kernel that has one in another module.
        rule_of: the rule that describes a leaf, by path.
        undescribed: leaves that seem to be of attention which no rule describes or leaves out.
        asked: the roles that schemes write if they are there; `read` are those that they read.
        tied: the copies of an embedding of tokens, which are written as it is, by its index;
            `notes` are what a plan says of them.
    """

    asked: frozenset[str] = frozenset()

    def __init__(
        self,
        params: Any,
        rules: Sequence[Rule] | None = None,
        num_heads: int | None = None,
        num_kv_heads: int | None = None,
    ) -> None:
        named, self._treedef = paths.flatten(params)
        checks.check_is_tree(params, [path for path, _ in named])
        self.found_rules = rules is None
        self.rules: Sequence[Rule] = zoo.rules_of(params) if rules is None else rules
        if not isinstance(self.rules, Sequence) or not all(
            isinstance(rule, Rule) for rule in self.rules
        ):
            raise InputError(f"rules {shown(rules)} are not a sequence of Rule")
        given = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        counts(**{name: count for name, count in given.items() if count is not None})
        self.heads = {"h": num_heads, "g": num_kv_heads or num_heads}
        self.grouped = num_kv_heads is not None
        self.leaves = [leaf for _, leaf in named]
        self.paths = [path for path, _ in named]
        self.indices = {path: index for index, path in enumerate(self.paths)}
        self.held: dict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            self.held[paths.parent(path)].append(path)
        self.beside = frozenset(self.paths)
        self.scaled = checks.scaled_elsewhere(self.beside)

        # By its path alone each leaf is labeled: the first rule that describes it, and its block.
        ranks = {path: np.ndim(leaf) for path, leaf in named}
        found = {path: find_rule(path, self.rules, self.beside, ranks[path]) for path in self.paths}
        labels = {path: label for path, label in found.items() if label}
        self.rule_of = {path: rule for path, (rule, _) in labels.items()}
        others = _without_rule(ranks, self.rule_of)
        attention = names.attention(others.items(), ranks.keys() - others.keys())
        self.undescribed = [path for path in attention if not self.leaves_out(path)]
        self.read = set[str]()
        self.blocks: dict[str, dict[str, Leaf]] = defaultdict(dict)
        self._norms: dict[str, dict[str, Leaf]] = defaultdict(dict)  # with "/" between names
        self._read_only: dict[str, dict[str, Leaf]] = defaultdict(dict)
        for block, members in self._members(
            labels, checks.of_optimizer(params, self.paths)
        ).items():
            for leaf in self._sized(members):
                self._place(leaf, block)
        self.tied, self.notes = tie(self)

    def _members(
        self, labels: Mapping[str, tuple[Rule, str]], of_optimizer: Mapping[int, str]
    ) -> dict[str, list[tuple[int, Rule]]]:
        """The leaves of each block that have roles, by index; those of gated MLPs are none."""
        gated = _gated_blocks(self.paths, self.rule_of)
        members: dict[str, list[tuple[int, Rule]]] = defaultdict(list)
        for index, path in enumerate(self.paths):
            rule, block = labels.get(path, (None, ""))
            if not rule or not rule.roles:
                continue
            if block in gated and _MLP.issuperset(rule.roles) and not rule.read_only:
                continue
            if index in of_optimizer:
                raise InputError(
                    f"{path} belongs to {of_optimizer[index]}: give the parameters alone, such as "
                    "state.params, and make the rest of the state from the new ones, as "
                    "optimizer.init does, since a copy of the old ones would bring them back"
                )
            members[block].append((index, rule))
        return members

    def _sized(self, members: Sequence[tuple[int, Rule]]) -> list[Leaf]:
        """The leaves of a block, once for each role that they hold."""
        heads = self.heads
        for index, rule in members:
            if "relative_bias" in rule.roles:  # the stages of a Swin have other numbers of heads
                table, *_ = self._roles_of(index, rule, heads)
                heads = dict.fromkeys("hg", table.axes["h"]) if table.fits else heads
        single = [member for member in members if not member[1].stored.parts]
        joined = [member for member in members if member[1].stored.parts]
        leaves = [leaf for member in single for leaf in self._roles_of(*member, heads)]
        sizes = ChainMap(*(leaf.axes for leaf in leaves if leaf.fits))
        leaves += [leaf for member in joined for leaf in self._roles_of(*member, heads, sizes)]
        widths = {f"{leaf.role}_gain": leaf.axes for leaf in leaves if leaf.fits}
        return [leaf.as_wide_as(widths.get(leaf.role, {}).get("k")) for leaf in leaves]

    def _roles_of(
        self,
        index: int,
        rule: Rule,
        heads: Mapping[str, int | None],
        beside: Mapping[str, int] | None = None,
    ) -> list[Leaf]:
        """A leaf as each of its roles, by numbers of heads and the sizes of leaves beside it."""
        path, shape = self.paths[index], np.shape(self.leaves[index])
        sizes, problem = {}, ""
        try:
            heads = {axis: rule.heads or count for axis, count in heads.items()}
            sizes = rule.stored.sizes(path, shape, heads, beside or {})
        except InputError as error:  # fine for a Dense that only shares a name with attention
            problem = str(error)
        return [Leaf(index, path, role, rule, shape, sizes, problem) for role in rule.roles]

    def _place(self, leaf: Leaf, block: str) -> None:
        """Put a leaf into its block, or a norm beside the block that it belongs to."""
        blocks = self._read_only if leaf.rule.read_only else self.blocks
        roles = self._norms[paths.above(block)[0]] if leaf.rule.of_norm else blocks[block]
        rival = roles.get(leaf.role)
        if rival and leaf.role != "post_norm":
            raise InputError(f"{rival.path} and {leaf.path} both claim role {leaf.role}")
        roles[leaf.role] = leaf

    def leaves_out(self, path: str, roles: Collection[str] = ROLES) -> bool:
        """Whether a rule leaves a leaf out on purpose, where it would have one of these roles.

        The `within` of a table tells whose names these are, and leaves nothing out.
        """
        excluded = {rule.exclude for rule in self.rules} - {""}
        return any(search(expression, path) for expression in excluded) or any(
            rule.leaves_out(path)
            for rule in self.rules
            if not (self.found_rules or zoo.has_rule(rule)) and not {*rule.roles}.isdisjoint(roles)
        )

    def strangers(self, block: str) -> list[str]:
        """Leaves in the module of a block's attention that no rule knows, nor any common name."""
        kernels = [
            re.split("[/.]", leaf.path)
            for role, leaf in self.blocks[block].items()
            if role in ATTENTION
        ]
        # The leaf of a layer, such as q_proj/weight, or its kernel itself.
        parents = [path[: -2 if path[-1] in ("kernel", "weight", "w") else -1] for path in kernels]
        same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*parents, strict=False))
        inside = "".join(f"{parts[0]}/" for parts in same)
        names_inside = {
            path: path.replace(".", "/").removeprefix(inside)
            for path in self.paths
            if path.replace(".", "/").startswith(inside) and path not in self.rule_of
        }
        if not inside:  # the tree has no name for the module
            return []
        return [
            path
            for path, name in names_inside.items()
            # Scales of a kernel have an error of their own.
            if not names.BESIDE.fullmatch(name) and not checks.is_scale(name)
        ]

    def by_rules(self, rules: Sequence[Rule]) -> Tree:
        """The same parameters, described by other rules."""
        return Tree(self.params, rules, self.heads["h"], self.heads["g"])

    def with_leaves(self, leaves: list[Any]) -> Self:
        """The tree with other values of its leaves."""
        other = copy.copy(self)
        other.leaves = leaves
        return other

    def seen_by(self, scheme: Scheme) -> Self:
        """The tree with gated MLPs among its blocks, if the scheme writes them."""
        if not scheme.gated:
            return self
        other = copy.copy(self)
        other.blocks = defaultdict(dict, self.merged())
        return other

    def merged(self) -> dict[str, dict[str, Leaf]]:
        """The blocks with the leaves that only `check` reads."""
        both = self._read_only, self.blocks
        return {
            block: {role: leaf for of in both for role, leaf in of.get(block, {}).items()}
            for block in {**self._read_only, **self.blocks}
        }

    @property
    def params(self) -> Any:
        """The parameter tree of the leaves."""
        return jax.tree.unflatten(self._treedef, self.leaves)

    def stored(self, leaf: Leaf) -> Any:
        """The stored array of a leaf; an error if it has no values."""
        value = self.leaves[leaf.index]
        if self.is_shape(leaf):
            raise InputError(f"{leaf.path} is a shape without values")
        concrete = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
        if concrete and value.is_deleted():
            raise InputError(f"{leaf.path} is a deleted array, as donation leaves it")
        return value

    def is_shape(self, leaf: Leaf) -> bool:
        return isinstance(self.leaves[leaf.index], jax.ShapeDtypeStruct)

    def dtype(self, leaf: Leaf) -> Any:
        return dtype_of(self.leaves[leaf.index])

    def view(self, block: str, layer: int | jax.Array | None) -> Block:
        """A block as schemes see it: one layer of it, if layers are stacked."""
        return self._view(block, self.blocks[block], layer)

    def _view(self, block: str, among: Mapping[str, Leaf], layer: int | jax.Array | None) -> Block:
        leaves = {role: leaf for role, leaf in among.items() if leaf.fits}
        shapes = {role: leaf.canonical_shape for role, leaf in leaves.items()}

        def read(role: str) -> jax.Array:
            self.read.add(role)
            check_dtype(self.dtype(leaves[role]), f"{leaves[role].path}: dtype")
            checks.check_unscaled(self, block, leaves[role])
            return self._canonical(leaves[role], layer)

        multipliers = {role: float(leaf.multiplier) for role, leaf in leaves.items()}
        return Block(shapes, read, multipliers)

    def _canonical(self, leaf: Leaf, layer: int | jax.Array | None) -> jax.Array:
        array = leaf.unpack(self.stored(leaf))
        if layer is not None and leaf.layers is not None:
            traced = isinstance(layer, jax.core.Tracer)
            array = (jnp.asarray(array) if traced else array)[layer]
        # JAX would share the memory of NumPy's aligned arrays, which `rewrite_in_place` overwrites
        # while other blocks read the position table.
        return jnp.array(array, jnp.float32, copy=isinstance(array, np.ndarray))

    def views(self, *, read_only: bool = False) -> list[tuple[str, int | None, Block]]:
        """What `blocks` returns; with the leaves that schemes leave as they are, if `read_only`."""
        checks.check_described(self)
        found: list[tuple[str, int | None, Block]] = []
        attention: list[tuple[str, list[Leaf]]] = []
        blocks = self.merged() if read_only else self.blocks
        for block in sorted(blocks, key=paths.natural_order):
            leaves = blocks[block]
            kernels = attention_kernels(frozenset(leaves))
            for role in sorted(kernels):
                checks.check_fits(self, block, leaves[role])
            checks.check_heads(self, block, kernels)
            attention += [(block, [leaves[role] for role in sorted(kernels)])]
            if any(leaf.fits for leaf in leaves.values()):
                among = leaves | self.norms_around(block, leaves)
                stack = self._stack(block, leaves.values())
                found += [(block, layer, self._view(block, among, layer)) for layer in stack]
        checks.check_one_width(self, attention)
        return found

    def norms_around(self, block: str, roles: Collection[str]) -> dict[str, Leaf]:
        """The gains and scales of a block by role: those of the nearest place, with the biases of
        norms as shifts."""
        kinds = [kind for kind, kernels in _KINDS.items() if not kernels.isdisjoint(roles)]
        found = {}
        for role in (f"{kind}_{what}" for kind in kinds for what in ("gain", "scale")):
            names = (role, "shared_gain") if role.endswith("gain") else (role,)
            for leaves in (self._norms.get(place, {}) for place in paths.above(block)):
                if leaf := next((leaves[name] for name in names if name in leaves), None):
                    leaf.check()
                    found[role] = leaf
                    if role.endswith("gain") and (shift := self._bias_beside(leaf)):
                        found[role.replace("gain", "shift")] = shift
                    break
        return found

    def _bias_beside(self, gain: Leaf) -> Leaf | None:
        """The bias of the norm that has this gain."""
        if not (layer := paths.parent(gain.path)):
            return None
        for path in self.held[layer]:
            index = self.indices[path]
            if _BIAS.search(path) and np.shape(self.leaves[index]) == gain.shape:
                rule = dataclasses.replace(gain.rule, role="attention_shift", plus_one=False)
                return dataclasses.replace(
                    gain, index=index, path=path, role="attention_shift", rule=rule
                )
        return None

    def _columns(self, block: str) -> frozenset[int]:
        """The numbers of heads of a block, of the columns of one, and of all."""
        sizes = [
            leaf.axes for leaf in self.blocks[block].values() if leaf.fits and "k" in leaf.axes
        ]
        heads = {axes[name] for axes in sizes for name in "hg" if name in axes}
        widths = {axes["k"] for axes in sizes}
        return frozenset(heads | widths | {count * width for count in heads for width in widths})

    def vectors(self, block: str, layer: int | None, width: int) -> dict[str, bool]:
        """Other arrays [D] in the layer of a block, or of a head or its columns in the block
        itself, by path: True if they are norms after the sum.

        False are those that no rule describes; biases aren't among them.
        """
        # "layers/0" of "layers/0/self_attn"
        places = [place for place in paths.above(block)[:4] if place]
        numbered = (place for place in places if layer is None and place[-1].isdecimal())
        place = next(numbered, places[min(1, len(places) - 1)] if places else "")
        columns = self._columns(block)
        found = {}
        for path, leaf in zip(self.paths, self.leaves, strict=True):
            at = path.replace(".", "/")
            inside = not place or at.startswith(f"{place}/")
            own = bool(block) and at.startswith(f"{block.replace('.', '/')}/")
            known = width in np.shape(leaf) or (own and not columns.isdisjoint(np.shape(leaf)))
            if inside and known and np.ndim(leaf) == (1 if layer is None else 2):
                rule = self.rule_of.get(path)
                after = rule is not None and "post_norm" in rule.roles
                if after or (rule is None and not _BIAS.search(path)):
                    found[path] = after
        return found

    def stored_in(self, block: str, role: str) -> list[Leaf]:
        """The leaf that holds a role of a block, and its copies."""
        leaf = self.blocks[block][role]
        return [leaf, *self.tied.get(leaf.index, ())]

    def layers(self, block: str) -> list[int | None]:
        """The layers that a block stacks; [None] if it doesn't stack layers."""
        return self._stack(block, self.blocks[block].values())

    def _stack(self, block: str, leaves: Collection[Leaf]) -> list[int | None]:
        stacks = {leaf.layers for leaf in leaves if leaf.fits} or {None}
        if len(stacks) > 1:
            hint = advice.hint_of_heads(self, leaves)
            raise InputError(f"{block}: some of its leaves stack layers and some don't{hint}")
        stack = stacks.pop()
        return [None] if stack is None else list(range(stack))

    def families(self, blocks: Iterable[str]) -> list[tuple[str, ...]]:
        """The names of the layers of each kind that has several, in the order of depth."""
        names: dict[str, list[str]] = defaultdict(list)
        for block in blocks:
            layers = self.layers(block) or [None]  # a stack of none has a name, too
            names[paths.family(block)] += [paths.of_layer(block, layer) for layer in layers]
        return [tuple(layers) for layers in names.values() if len(layers) > 1]

    def depth(self, block: str, layer: int | None) -> tuple[int, int]:
        """A layer's index among the blocks of its family, and their number.

        A block that stacks its layers counts as that many: the stages of a Swin are one family.
        """
        name = paths.family(block)
        family = [other for other in self.blocks if paths.family(other) == name]
        sizes = {
            other: len(self.layers(other)) for other in sorted(family, key=paths.natural_order)
        }
        before = itertools.takewhile(lambda other: other != block, sizes)
        return sum(sizes[other] for other in before) + (layer or 0), sum(sizes.values())

    def surroundings(self, given: Context) -> Context:
        """What schemes use beside a block: what is given, the position table's rows for the patch
        grid, and whether the positions are of text: with a given grid they are of patches."""
        grid = None if given.grid is None else pair("the grid", given.grid)
        tables = [leaves["position"] for leaves in self.blocks.values() if "position" in leaves]
        if len(tables) != 1 or not tables[0].fits:
            text = None if grid is None else False
            return dataclasses.replace(given, grid=grid, text=text)
        text = self._of_text(tables[0]) if grid is None else False
        count, _ = tables[0].canonical_shape
        if not text:
            grid = grid or square_grid(count) or square_grid(count - 1)
        known = dataclasses.replace(given, grid=grid, text=text)
        if grid is not None and not 0 <= count - grid[0] * grid[1] <= 2:
            raise InputError(
                f"a grid of {grid[0]}x{grid[1]} doesn't fit a table of {count} positions: "
                f"{tables[0].path} has a row for each patch, after those of up to two class tokens"
            )
        if grid is None or self.is_shape(tables[0]):
            return known
        table = self._canonical(tables[0], None)
        return dataclasses.replace(known, position=table[count - grid[0] * grid[1] :])

    def _of_text(self, table: Leaf) -> bool | None:
        described = {
            leaf.index
            for leaves in self.blocks.values()
            for role, leaf in leaves.items()
            if not leaf.rule.of_first_layer
        }
        ranks = zip(self.paths, map(np.ndim, self.leaves), strict=True)
        others = (one for index, one in enumerate(ranks) if index not in described)
        text = names.of_text(table.path, others, self.beside)
        patches = any("patch" in leaves for leaves in self.blocks.values())
        shapes = zip(self.paths, map(np.shape, self.leaves), strict=True)
        if text is None and patches and not any(names.embeds_tokens(*one) for one in shapes):
            return False  # their name isn't that of patches
        return text

    def matches(self, scheme: Scheme) -> list[tuple[str, list[Leaf]]]:
        """Every block that a scheme writes, sorted, with the leaves to write; an error if none."""
        found = []
        for block in sorted(self.blocks, key=paths.natural_order):
            try:
                with blaming(block):
                    roles = roles_to_write(scheme, self.blocks[block])
            except InputError as error:  # half of the names may be those of stock layers
                raise InputError(f"{error}{advice.hint(self)}") from error
            if roles:
                leaves = [leaf for role in sorted(roles) for leaf in self.stored_in(block, role)]
                # First, as its error says what is wrong with layers that are read as a width.
                checks.check_heads(self, block, roles)
                for leaf in leaves:
                    checks.check_fits(self, block, leaf)
                    check_dtype(self.dtype(leaf), f"{leaf.path}: dtype")
                    checks.check_unscaled(self, block, leaf)
                    checks.check_partner(self, block, leaf)
                found.append((block, leaves))
        checks.check_one_width(self, found)
        written = frozenset(leaf.role for _, leaves in found for leaf in leaves)
        wanted = advice.wanted_by(scheme)
        if wanted.intersection(ATTENTION) or not (found or wanted <= {"position", *FIRST_LAYER}):
            checks.check_described(self, scheme)
        if not found:
            raise InputError(advice.no_match(self, scheme))
        lacking.check(self, scheme)
        with advice.naming_leaves(self):
            scheme.check_tree(frozenset(itertools.chain(*self.blocks.values())), written)
        attention = [block for block, leaves in found if {x.role for x in leaves} & set(ATTENTION)]
        checks.check_one_per_layer(self, attention)
        for block, _ in found if scheme.exact else ():
            if "query" in self.blocks[block]:
                checks.check_columns(self, block, self.layers(block)[0])
        return found

    def untied_rules(self) -> Sequence[Rule] | None:
        """The rules for a model that isn't tied, whatever its output layer holds; None if the given
        or known ones do."""
        if not self.tied:
            return None
        return tuple(
            dataclasses.replace(rule, untied=True) if "embedding" in rule.roles else rule
            for rule in self.rules
        )

    @property
    def name_of_rules(self) -> str:
        """What `rules` are called in an argument."""
        if self.rules is zoo.FLAX:
            return "zoo.FLAX"
        name = zoo.table_name(self.rules)
        return f"zoo.{name}" if name else "rules"


def _without_rule(ranks: Mapping[str, int], rule_of: Mapping[str, Rule]) -> dict[str, int]:
    """The leaves that no rule describes and that may be of attention, with their axes' number."""
    # Mamba's projection of its input has a name that is common in attention.
    mambas = {paths.parent(path) for path in ranks if re.search(r"(^|[/.])A_log$", path)}
    return {
        path: rank
        for path, rank in ranks.items()
        if path not in rule_of
        and not _GATE.search(path)
        and paths.parent(paths.parent(path)) not in mambas
    }


def _gated_blocks(leaves: Iterable[str], rule_of: Mapping[str, Rule]) -> set[str]:
    """The blocks with a third kernel of an MLP.

    A layer of such a name whose kernel has a rule is one of the two, whatever else it holds.
    """
    written = {path for path, rule in rule_of.items() if not rule.read_only}
    layers = {paths.parent(path) for path in written if rule_of[path].roles}
    gates = [gate for path in leaves if path not in written and (gate := _GATE.search(path))]
    return {
        gate.string[: gate.start()] for gate in gates if gate.string[: gate.end()] not in layers
    }


def dtype_of(value: Any) -> Any:
    """The dtype of an array, a shape or a number."""
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
