"""The blocks of a parameter tree: its leaves by role, read in canonical form.

Rules match the path of a leaf to its role (`rules`), which is never guessed from its shape.
"""

from __future__ import annotations

import copy
import itertools
import re
import zlib
from collections import ChainMap, Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax import zoo
from mimetic_jax.base.errors import InputError, blaming
from mimetic_jax.base.typed import shown
from mimetic_jax.schemes import Block, Scheme
from mimetic_jax.schemes.base import attention_kernels, roles_to_write
from mimetic_jax.tree import names, paths
from mimetic_jax.tree.layout import GROUPED_ADVICE, OWN_RULES
from mimetic_jax.tree.leaf import Leaf
from mimetic_jax.tree.rules import ROLES, Rule, find_rule, search
from mimetic_jax.weights.checks import check_dtype, counts, pair
from mimetic_jax.weights.position import square_grid
from mimetic_jax.zoo.by_hand import by_hand
from mimetic_jax.zoo.suggestion import (
    mlp_suggestion,
    numbered,
    position_suggestion,
    suggestion,
)

_KERNELS = ("query", "key", "value", "out")
_KINDS = {"attention": frozenset(_KERNELS), "mlp": frozenset(("mlp_in", "mlp_out"))}
_BIAS = re.compile(r"(bias|(^|[/.])(beta|b))$")

# T5 and its kin have relative biases and don't divide logits by √K.
_UNDIVIDED = re.compile(r"(^|[/.])(relative_attention_bias|relpos_bias)[/.]")

_OPTIMIZER = re.compile(r"(^|/)opt(imizer)?_states?/")

# What files of quantized weights have beside a kernel, in its layer or with its name in front.
_SCALES = re.compile(
    r"(?i)(weight_|kernel_|w_|input_)?(scales?(_inv)?|zeros|zero_?points?|absmax|scb|quant_state)"
    r"([/._].*)?"
)

# A third kernel of an MLP, beside the two that a rule describes. Schemes for MLPs are about two
# kernels with a function between them, so a gated MLP stays as it is, and `check` alone reads it.
_GATE = re.compile(r"(^|[/.])(up|gate)(_proj)?(?=[/.])")
_MLP = frozenset({"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"})

_PATCHES = re.compile("patch", re.IGNORECASE)
_CONVOLUTION = re.compile("conv|embed|stem", re.IGNORECASE)
_TOKENS = re.compile("(^|[/._])(wte|tok|vocab|shared)|embed", re.IGNORECASE)

_SAME_SIZES = (
    ("query", "query_bias", "hk"),
    ("key", "key_bias", "gk"),
    ("value", "value_bias", "gk"),
    ("query", "out", "h"),
    ("key", "value", "g"),
    ("value", "out", "k"),
)
"""Axes that two roles of an attention layer share. (Those of a product are checked where it is
computed.)"""


class Tree:
    """A parameter tree and, by rules, its blocks.

    Attributes:
        leaves, paths: of the tree, in its order.
        blocks: the described leaves by the path of their block and by role.
    """

    def __init__(
        self,
        params: Any,
        rules: Sequence[Rule] | None,
        num_heads: int | None,
        num_kv_heads: int | None,
    ) -> None:
        named, self._treedef = paths.flatten(params)
        if any(not path for path, _ in named):
            raise InputError(
                f"{shown(params)} is not a tree of parameters: give a dictionary of arrays or "
                "another pytree, such as model.init(key, x)['params']"
            )
        self._found_rules = rules is None
        self.rules: Sequence[Rule] = zoo.rules_of(params) if rules is None else rules
        if not isinstance(self.rules, Sequence) or not all(
            isinstance(rule, Rule) for rule in self.rules
        ):
            raise InputError(f"rules {shown(rules)} are not a sequence of Rule")
        given = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        counts(**{name: count for name, count in given.items() if count is not None})
        self._heads = {"h": num_heads, "g": num_kv_heads or num_heads}
        self._grouped = num_kv_heads is not None
        self.leaves = [leaf for _, leaf in named]
        self.paths = [path for path, _ in named]
        self.blocks: dict[str, dict[str, Leaf]] = defaultdict(dict)
        self._norms: dict[str, dict[str, Leaf]] = defaultdict(dict)  # with "/" between names
        self._read_only: dict[str, dict[str, Leaf]] = defaultdict(dict)
        self._held: dict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            self._held[_parent(path)].append(path)
        self._of_optimizer = _of_optimizer(params, self.paths)
        self._beside = beside = frozenset(self.paths)
        self._scaled = _scaled_elsewhere(beside)
        self._rule_of: dict[str, Rule] = {}
        # Mamba's projection of its input has a name that is common in attention.
        mambas = {_parent(path) for path in self.paths if re.search(r"(^|[/.])A_log$", path)}
        claims: list[tuple[int, str, Rule, tuple[int, ...]]] = []
        gates: dict[str, str] = {}  # blocks by layer
        others: list[tuple[str, int]] = []
        for index, (path, value) in enumerate(named):
            described = find_rule(path, self.rules, beside)
            if described:
                rule, block = described
                self._rule_of[path] = rule
                claims += [(index, block, rule, np.shape(value))] if rule.roles else []
                if not rule.read_only:
                    continue
            if gate := _GATE.search(path):
                gates[path[: gate.end()]] = path[: gate.start()]
            elif not described and _parent(_parent(path)) not in mambas:
                others.append((path, np.ndim(value)))
        excluded = {rule.exclude for rule in self.rules} - {""}
        covered = set(self.paths).difference(path for path, _ in others)
        self._undescribed = [
            path
            for path in names.attention(others, covered)
            if not any(rule.leaves_out(path) for rule in self.rules)
            and not any(search(expression, path) for expression in excluded)
        ]
        # A layer of such a name whose kernel has a rule is one of the two, whatever else it holds.
        described_layers = {
            _parent(self.paths[index]) for index, _, rule, _ in claims if not rule.read_only
        }
        gated = {block for layer, block in gates.items() if layer not in described_layers}
        # Other leaves of the block show the sizes of parts along one axis, and the heads of
        # windows, which differ between the stages of a Swin.
        for index, block, rule, shape in sorted(claims, key=lambda one: _claimed_after(one[2])):
            if rule.read_only or block not in gated or not _MLP.issuperset(rule.roles):
                self._claim(index, block, rule, shape)

    def _claim(self, index: int, block: str, rule: Rule, shape: tuple[int, ...]) -> None:
        path = self.paths[index]
        if index in self._of_optimizer:
            raise InputError(
                f"{path} belongs to {self._of_optimizer[index]}: give the parameters alone, such "
                "as state.params, and make the rest of the state from the new ones, as "
                "optimizer.init does, since a copy of the old ones would bring them back"
            )
        known = self.blocks.get(block, {})
        others = known.values() if rule.stored.parts else ()
        beside = ChainMap(*(leaf.axes for leaf in others if leaf.fits))
        biases = known.get("relative_bias")
        given = dict.fromkeys("hg", biases.axes["h"]) if biases and biases.fits else {}
        heads = {x: rule.heads or given.get(x, count) for x, count in self._heads.items()}
        sizes, problem = {}, ""
        try:
            sizes = rule.stored.sizes(path, shape, heads, beside)
        except InputError as error:  # fine for a Dense that only shares a name with attention
            problem = str(error)
        blocks = self._read_only if rule.read_only else self.blocks
        blocks, block = (self._norms, paths.above(block)[0]) if rule.of_norm else (blocks, block)
        for role in rule.roles:
            rival = blocks[block].get(role)
            if rival and role != "post_norm":
                raise InputError(f"{rival.path} and {path} both claim role {role}")
            blocks[block][role] = Leaf(index, path, role, rule, shape, sizes, problem)

    def with_leaves(self, leaves: list[Any]) -> Self:
        """The tree with other values of its leaves."""
        other = copy.copy(self)
        other.leaves = leaves
        return other

    @property
    def params(self) -> Any:
        """The parameter tree of the leaves."""
        return jax.tree.unflatten(self._treedef, self.leaves)

    def stored(self, leaf: Leaf) -> Any:
        """The stored array of a leaf.

        Raises:
            InputError: it has no values.
        """
        value = self.leaves[leaf.index]
        if self.is_shape(leaf):
            raise InputError(f"{leaf.path} is a shape without values")
        concrete = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
        if concrete and value.is_deleted():
            raise InputError(f"{leaf.path} is a deleted array, as donation leaves it")
        return value

    def is_shape(self, leaf: Leaf) -> bool:
        """Whether a leaf is a `jax.ShapeDtypeStruct`."""
        return isinstance(self.leaves[leaf.index], jax.ShapeDtypeStruct)

    def dtype(self, leaf: Leaf) -> Any:
        """The dtype of a leaf."""
        return dtype_of(self.leaves[leaf.index])

    def view(self, block: str, layer: int | None) -> Block:
        """A block as schemes see it: one layer of it, where layers are stacked."""
        return self._view(block, self.blocks[block], layer)

    def _view(self, block: str, among: Mapping[str, Leaf], layer: int | None) -> Block:
        leaves = {role: leaf for role, leaf in among.items() if leaf.fits}
        shapes = {role: leaf.canonical_shape for role, leaf in leaves.items()}

        def read(role: str) -> jax.Array:
            check_dtype(self.dtype(leaves[role]), f"{leaves[role].path}: dtype")
            self._check_unscaled(block, leaves[role])
            return self._canonical(leaves[role], layer)

        return Block(shapes, read)

    def _canonical(self, leaf: Leaf, layer: int | None) -> jax.Array:
        array = leaf.unpack(self.stored(leaf))
        array = array if layer is None or leaf.layers is None else array[layer]
        # JAX would share the memory of NumPy's aligned arrays, which `rewrite_in_place` overwrites
        # while other blocks read the position table.
        return jnp.array(array, jnp.float32, copy=isinstance(array, np.ndarray))

    def views(self, *, read_only: bool = False) -> list[tuple[str, int | None, Block]]:
        """What `blocks` returns; with the leaves that schemes leave as they are, if `read_only`."""
        self._check_described()
        found: list[tuple[str, int | None, Block]] = []
        attention: list[tuple[str, list[Leaf]]] = []
        others = self._read_only if read_only else {}
        for block in sorted({*self.blocks, *others}, key=paths.natural_order):
            leaves = {**others.get(block, {}), **self.blocks.get(block, {})}
            kernels = attention_kernels(frozenset(leaves))
            for role in sorted(kernels):
                self._check_fits(block, leaves[role])
            self._check_heads(block, kernels)
            attention += [(block, [leaves[role] for role in sorted(kernels)])]
            if any(leaf.fits for leaf in leaves.values()):
                among = leaves | self._norms_around(block, leaves)
                stack = self._stack(block, leaves.values())
                found += [(block, layer, self._view(block, among, layer)) for layer in stack]
        self._check_one_width(attention)
        return found

    def _norms_around(self, block: str, roles: Collection[str]) -> dict[str, Leaf]:
        """The gains and scales of a block's attention and MLP, by role: those of the nearest place.

        Raises:
            InputError: one has another shape than its rule says.
        """
        kinds = [kind for kind, kernels in _KINDS.items() if not kernels.isdisjoint(roles)]
        found = {}
        for role in (f"{kind}_{what}" for kind in kinds for what in ("gain", "scale")):
            names = (role, "shared_gain") if role.endswith("gain") else (role,)
            for leaves in (self._norms.get(place, {}) for place in paths.above(block)):
                if leaf := next((leaves[name] for name in names if name in leaves), None):
                    leaf.check()
                    found[role] = leaf
                    break
        return found

    def vectors(self, block: str, layer: int | None, width: int) -> dict[str, bool]:
        """Other arrays [D] in the layer of a block, by path: True if they are norms after the sum.

        False are those that no rule describes; biases aren't among them.
        """
        # "layers/0" of "layers/0/self_attn"
        places = [place for place in paths.above(block)[:4] if place]
        numbered = (place for place in places if layer is None and place[-1].isdecimal())
        place = next(numbered, places[min(1, len(places) - 1)] if places else "")
        found = {}
        for path, leaf in zip(self.paths, self.leaves, strict=True):
            inside = not place or path.replace(".", "/").startswith(f"{place}/")
            if inside and np.ndim(leaf) == (1 if layer is None else 2) and width in np.shape(leaf):
                rule = self._rule_of.get(path)
                after = rule is not None and "post_norm" in rule.roles
                if after or (rule is None and not _BIAS.search(path)):
                    found[path] = after
        return found

    def layers(self, block: str) -> list[int | None]:
        """The layers that a block stacks; [None] if it doesn't stack layers."""
        return self._stack(block, self.blocks[block].values())

    def _stack(self, block: str, leaves: Collection[Leaf]) -> list[int | None]:
        stacks = {leaf.layers for leaf in leaves if leaf.fits} or {None}
        if len(stacks) > 1:
            hint = self._hint_of_heads(leaves)
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

    def position(
        self, grid: tuple[int, int] | None
    ) -> tuple[jax.Array | None, tuple[int, int] | None, bool | None]:
        """The position table's rows for the patch grid, the grid, and whether it is of text.

        See the fields of `Context`. Who gives a grid has patches.
        """
        grid = None if grid is None else pair("the grid", grid)
        tables = [leaves["position"] for leaves in self.blocks.values() if "position" in leaves]
        if len(tables) != 1 or not tables[0].fits:
            return None, grid, None if grid is None else False
        text = self._of_text(tables[0].path) if grid is None else False
        count, _ = tables[0].canonical_shape
        if not text:
            grid = grid or square_grid(count) or square_grid(count - 1)
        if self.is_shape(tables[0]):
            return None, grid, text
        table = self._canonical(tables[0], None)
        return (None if grid is None else table[count - grid[0] * grid[1] :]), grid, text

    def _of_text(self, table: str) -> bool | None:
        """Whether the embedding that is nearest to the position table is of tokens, not of patches.

        None if the tree has neither, or both equally near.
        """
        described = {
            leaf.index
            for leaves in self.blocks.values()
            for role, leaf in leaves.items()
            if role != "embedding"
        }
        nearest = {"tokens": -1, "patches": -1}
        for index, (path, value) in enumerate(zip(self.paths, self.leaves, strict=True)):
            if index not in described and (kind := self._embeds(path, np.ndim(value))):
                names = zip(re.split("[/.]", path), re.split("[/.]", table), strict=False)
                shared = itertools.takewhile(lambda pair: pair[0] == pair[1], names)
                nearest[kind] = max(nearest[kind], len(list(shared)))
        tokens, patches = nearest.values()
        return None if tokens == patches else tokens > patches

    def _embeds(self, path: str, rank: int) -> str:
        """What a leaf embeds by its name, "tokens" or "patches"; "" if it is no embedding."""
        if (rank >= 2 and _PATCHES.search(path)) or (rank == 4 and _CONVOLUTION.search(path)):
            return "patches"
        if rank != 2 or not _TOKENS.search(path):
            return ""
        # A linear layer, of patches or of anything else, is a kernel, or has a bias beside it.
        bias = path.removesuffix("weight") + "bias"
        return "" if path.endswith("kernel") or bias in self.paths else "tokens"

    def matches(self, scheme: Scheme) -> list[tuple[str, list[Leaf]]]:
        """Every block that a scheme writes, sorted, with the leaves to write.

        Raises:
            InputError: there is none, or one that the scheme can't write.
        """
        found = []
        for block in sorted(self.blocks, key=paths.natural_order):
            try:
                with blaming(block):
                    roles = roles_to_write(scheme, self.blocks[block])
            except InputError as error:  # half of the names may be those of stock layers
                raise InputError(f"{error}{self._hint()}") from error
            if roles:
                leaves = [self.blocks[block][role] for role in sorted(roles)]
                # First, as its error says what is wrong with layers that are read as a width.
                self._check_heads(block, roles)
                for leaf in leaves:
                    self._check_fits(block, leaf)
                    check_dtype(self.dtype(leaf), f"{leaf.path}: dtype")
                    self._check_unscaled(block, leaf)
                    self._check_partner(block, leaf)
                found.append((block, leaves))
        self._check_one_width(found)
        written = frozenset(leaf.role for _, leaves in found for leaf in leaves)
        if found:
            scheme.check_tree(frozenset(itertools.chain(*self.blocks.values())), written)
        if not found or written & {"query", "value"}:
            self._check_described()
        if not found:
            raise InputError(self._no_match(scheme))
        attention = [block for block, leaves in found if {x.role for x in leaves} & set(_KERNELS)]
        self._check_one_per_layer(attention)
        _check_keys_differ([block for block, _ in found])
        return found

    def _check_fits(self, block: str, leaf: Leaf) -> None:
        """Raise InputError if the shape of a leaf that is used doesn't fit, with what would."""
        if OWN_RULES in leaf.problem and leaf.role in _KERNELS:
            inside = f"{block}/" if block else ""
            near = [path for path in self.paths if path.replace(".", "/").startswith(inside)]
            if call := self._suggestion(near):
                raise InputError(leaf.problem.replace(OWN_RULES, f"give {call}"))
        leaf.check()

    def _check_one_per_layer(self, blocks: Iterable[str]) -> None:
        """Raise InputError for attentions of one layer that differ in a number alone.

        Flax numbers self-attention and cross-attention so, and other libraries call them attn1 and
        attn2.
        """
        alike: dict[tuple[str, str], list[str]] = defaultdict(list)
        for block in blocks if self._found_rules else ():
            name = block.removeprefix(layer := _parent(block))
            if re.search("(?i)att|mha|multi_?head", name):
                alike[layer, re.sub(r"_?\d+$", "", name)].append(block)
        several = {where: found for where, found in alike.items() if len(found) > 1}
        layers = Counter(paths.family(layer) for layer, _ in several)
        for (layer, _), (first, second, *_) in several.items():
            if (
                layers[paths.family(layer)] > 1
                or self.layers(first) != [None]
                or paths.is_layer(layer)
            ):
                raise InputError(
                    f"{first} and {second} are in one layer, and their names don't tell "
                    "self-attention from cross-attention: give "
                    f"rules={self.name_of_rules} if all of them are self-attention, or leave "
                    f"one out with {self._without(f'{second}/', keep=re.split('[/.]', second)[-1])}"
                )

    def _check_partner(self, block: str, leaf: Leaf) -> None:
        partner = leaf.rule.partner
        if partner and partner not in self.blocks[block]:
            raise InputError(
                f"{leaf.path} has the name of {leaf.role}, but no leaf beside it that of its "
                f"{partner}: name the blocks to write with within=…, or give "
                f"Rule(path, {leaf.role!r}, layout)"
            )
        if partner:
            other = self.blocks[block][partner]
            other.check()
            if any(other.axes[axis] != size for axis, size in leaf.axes.items()):
                raise InputError(
                    f"{leaf.path} of shape {leaf.shape} and {other.path} of shape {other.shape} "
                    "are no MLP whose output is as wide as its input: if they are a classifier, "
                    f"leave them out with {self._without(leaf.path, other.path)}"
                )

    def _check_unscaled(self, block: str, leaf: Leaf) -> None:
        """Raise InputError for a kernel that is stored as a multiple of its scales."""
        if scale := self._scaled.get(leaf.path):
            raise InputError(
                f"{leaf.path} is scaled by {scale}, as by a weight norm: its stored length has no "
                "effect, and a scheme would leave the scale as it is"
            )
        layer = _parent(leaf.path)
        kernel = leaf.path.removeprefix(layer).lstrip("/.")
        for path in (*self._held[layer], *self._held[leaf.path]):
            name = path.removeprefix(layer).lstrip("/.")
            if name.startswith(kernel):
                name = name.removeprefix(kernel).lstrip("/._")
            elif layer == block:  # a scale of its own, as of a norm or of logits
                continue
            if _SCALES.fullmatch(name):
                raise InputError(
                    f"{leaf.path} is quantized or scaled by {path}, which a scheme would leave as "
                    "it is: give the weights in floating point, without scales"
                )

    def _check_one_width(self, blocks: Iterable[tuple[str, Iterable[Leaf]]]) -> None:
        """Raise InputError if one `num_heads` would divide attention of several widths."""
        divided = []
        for block, leaves in blocks:
            kernels = [leaf for leaf in leaves if leaf.role in _KERNELS and leaf.fits]
            if kernels and kernels[-1].rule.heads is None:
                leaf = kernels[-1]  # query or value, if these are written
                flat = leaf.rule.stored.flattens("h") or leaf.rule.stored.flattens("g")
                divided += [leaf] * (flat and "relative_bias" not in self.blocks[block])
        for leaf in divided:
            first = divided[0]
            if leaf.axes["d"] != first.axes["d"]:
                raise InputError(
                    f"{first.path} has width {first.axes['d']} and {leaf.path} width "
                    f"{leaf.axes['d']}, which may have other numbers of heads than "
                    f"{self._heads['h']}: leave one of them out with "
                    f"{self._without(part_of(leaf.path, first.path))}, or give a rule for each "
                    "with its own heads=…"
                )

    def _without(self, *parts: str, keep: str = "") -> str:
        return without(self.name_of_rules, *parts, keep=keep)

    @property
    def name_of_rules(self) -> str:
        """What `rules` are called in an argument."""
        if self.rules is zoo.FLAX:
            return "zoo.FLAX"
        name = zoo.table_name(self.rules)
        return f"zoo.{name}" if name else "rules"

    def _check_heads(self, block: str, written: frozenset[str]) -> None:
        """Raise InputError if the leaves of an attention layer disagree about its heads."""
        if not attention_kernels(written):
            return
        leaves = {role: leaf for role, leaf in self.blocks[block].items() if leaf.fits}
        for wide, narrow in (("query", "key"), ("out", "value")):
            if {wide, narrow} <= written & leaves.keys() and leaves[narrow].rule.stored.flattens(
                "g"
            ):
                widths = [leaves[role].axes["k"] for role in (wide, narrow)]
                if widths[0] != widths[1]:
                    self._check_no_gate(block, leaves)
                    raise InputError(
                        f"{leaves[wide].path} has heads of width {widths[0]}, "
                        f"{leaves[narrow].path} of width {widths[1]}: " + self._advice_on_groups()
                    )
        query = leaves.get("query")
        if self._found_rules and query and query.layers == query.axes["h"] == query.axes["d"]:
            raise InputError(
                f"{query.path} of shape {query.shape} may stack its layers along axis 0 or 1: give "
                f"rules={self.name_of_rules}, or attention_rules(stacked=True, axis=1)"
            )
        for first, second, shared in _SAME_SIZES:
            if {first, second} <= leaves.keys():
                one, other = leaves[first], leaves[second]
                if any(one.axes[axis] != other.axes[axis] for axis in shared):
                    raise InputError(
                        f"{one.path} of shape {one.shape} and {other.path} of shape {other.shape} "
                        f"have different heads by their layouts {one.rule.layout!r} and "
                        f"{other.rule.layout!r}{self._hint_of_heads(leaves.values())}"
                    )

    def _check_no_gate(self, block: str, leaves: Mapping[str, Leaf]) -> None:
        """Raise InputError if query makes twice as many columns as out takes."""
        if {"query", "out"} <= leaves.keys():
            query, out = leaves["query"], leaves["out"]
            columns, rows = (leaf.axes["h"] * leaf.axes["k"] for leaf in (query, out))
            if columns == 2 * rows:
                raise InputError(
                    f"{query.path} has {columns} columns, twice the {rows} that {out.path} takes: "
                    "half of them may be gates, which no layout tells from queries; leave this "
                    f"attention out with {self._without(f'{block}/')}"
                )

    def _hint_of_heads(self, leaves: Collection[Leaf]) -> str:
        """Advice for a fused kernel of grouped heads, and for stacked layers that are read as
        others: with flattened heads, kernels have as many axes as those of one layer with heads
        apart."""
        if any("three" in leaf.rule.layout for leaf in leaves):
            return f"; {GROUPED_ADVICE}"
        call = self._suggestion([leaf.path for leaf in leaves], beside="")
        if "axis=1" in call:
            return f": layers are stacked along axis 1, not along the first; give {call}"
        if "stacked=True, flat=True" not in call:
            advice = by_hand(leaf.path for leaf in leaves)
            return f": {advice}" if advice else ""
        return f": stacked layers with flattened heads need {call}"

    def _advice_on_groups(self) -> str:
        if self._grouped:
            return f"num_heads {self._heads['h']} or num_kv_heads {self._heads['g']} is another"
        return "give num_kv_heads, the number of heads of key and value"

    def _check_described(self) -> None:
        if not self._undescribed:
            return
        path = self._undescribed[0]
        parts = {
            *re.split("[/.]", path),
            *(re.split("[/.]", p)[-1] for p in self._held[_parent(path)]),
        }
        if any(map(_SCALES.fullmatch, parts)):
            raise InputError(
                f"{path} is quantized or a scale: give weights in floating point, without scales"
            )
        advice = self._hint()
        if not advice and (reason := self._left_out([path])):
            raise InputError(f"no rule describes {path}: {reason}")
        if not advice:
            parents = {_parent(_parent(one)) for one in self._undescribed}
            near = [one for one in self.paths if _parent(_parent(one)) in parents]
            call = self._suggestion(near) or "rules=(Rule(path, role, layout), …)"
            layers = {_parent(one) for one in self._undescribed}
            alike = [x for x in sorted(layers) if _parent(x) == _parent(_parent(path))]
            advice = (
                f": give {call}; if it is no attention, leave it out with "
                f"{self._without(*(f'{layer}/' if layer else path for layer in alike))}"
            )
        others = len(self._undescribed) - 1
        raise InputError(f"no rule describes {path} (and {others} more){advice}")

    def _no_match(self, scheme: Scheme) -> str:
        """Why a scheme finds nothing, and what to do."""
        seen = ", ".join(self.paths[:8]) + (", …" if len(self.paths) > 8 else "")
        message = f"{name_of(scheme)} matches nothing among the paths {seen or '(none)'}"
        if hint := self._hint(scheme):
            return message + hint
        if roles_to_write(scheme, _KERNELS):
            if call := self._suggestion(self.paths):
                return f"{message}: give {call}"
            if reason := self._left_out(self.paths):
                return f"{message}: {reason}"
        shapes = [(p, np.shape(leaf)) for p, leaf in zip(self.paths, self.leaves, strict=True)]
        for role, suggested in (("mlp_in", mlp_suggestion), ("position", position_suggestion)):
            if role in scheme.writes(frozenset({"mlp_in", "mlp_out", "position"})) and (
                call := suggested(shapes, self.name_of_rules)
            ):
                return f"{message}: give {call}"
        every = sorted(scheme.writes(frozenset(ROLES)))
        if not every:
            return f"{name_of(scheme)} writes nothing in any tree: {shown(scheme)}"
        kernels = [role for role in every if not role.endswith("_bias")]
        return (
            f"{message}: no rule gives one of them the role {' or '.join(kernels or every)}; put "
            "one in front, rules=(Rule(path, role, layout), *rules)"
        )

    def _left_out(self, among: Iterable[str]) -> str:
        """Why no rule describes attention that a table knows by its names."""
        for path in among:
            if re.search(r"(^|[/.])[kv]_proj_weight$", path):
                return (
                    f"torch.nn.MultiheadAttention has {path} if keys or values have another width "
                    "than queries; such cross-attention is left out"
                )
            tables = (self.rules, *zoo.TABLES.values())
            if self._rule_without_role(path):
                return (
                    f"{path} is left out by its name or by what is beside it, as pooling, or as "
                    "attention that is no softmax between tokens; to write it, give its own rules"
                )
            if any(rule.excludes(path) for table in tables for rule in table):
                return (
                    f"{path} is left out by its name, as cross-attention or a part beside another "
                    "model; to write it, give it alone, without what its path starts with"
                )
        return ""

    def _suggestion(self, among: Iterable[str], beside: str | None = None) -> str:
        """What to give for the attention of some paths, beside the rules of the rest."""
        shapes = dict(zip(self.paths, map(np.shape, self.leaves), strict=True))
        if beside is None:
            fitting = (
                frozenset(role for role, leaf in leaves.items() if leaf.fits)
                for leaves in self.blocks.values()
            )
            beside = self.name_of_rules if any(map(attention_kernels, fitting)) else ""
        among = [path for path in among if not self._rule_without_role(path)]
        undivided = any(map(_UNDIVIDED.search, self.paths))
        return suggestion(((path, shapes[path]) for path in among), beside, undivided=undivided)

    def _rule_without_role(self, path: str) -> bool:
        """Whether a table says that a leaf is no attention, or none of the model's own."""
        tables = (self.rules, zoo.FLAX, *zoo.TABLES.values())
        found = (find_rule(path, rules, self._beside) for rules in tables)
        return any(one is not None and not one[0].roles for one in found)

    def _hint(self, scheme: Scheme | None = None) -> str:
        """Advice to use another table of the zoo, by which the scheme finds something, or rules."""
        name = zoo.detect(self.params)
        if name is None or tuple(self.rules) == zoo.TABLES[name]:
            advice = by_hand(self.paths)
            return f": {advice}" if advice else ""
        if scheme is not None and not self._finds(scheme, zoo.TABLES[name]):
            return ""
        return f": it looks like zoo.{name}, give rules=zoo.{name}"

    def _finds(self, scheme: Scheme, rules: Sequence[Rule]) -> bool:
        """Whether the scheme would write anything by other rules."""
        try:
            blocks = Tree(self.params, rules, self._heads["h"], self._heads["g"]).blocks
            return any(roles_to_write(scheme, roles) for roles in blocks.values())
        except InputError:
            return False


def _of_optimizer(params: Any, names: Sequence[str]) -> dict[int, str]:
    """What the leaves of a training state belong to that aren't its parameters, by their index.

    A moment mirrors the parameters, and a schedule-free optimizer, float32 masters or a moving
    average hold a copy of them.
    """

    def is_optax(node: Any) -> bool:
        return isinstance(node, tuple) and type(node).__module__.split(".")[0] == "optax"

    found: dict[int, str] = {}
    index = 0
    for node in jax.tree.leaves(params, is_leaf=is_optax):
        size = len(jax.tree.leaves(node))
        if is_optax(node):
            found |= dict.fromkeys(range(index, index + size), f"optax's {type(node).__name__}")
        index += size
    seen = frozenset(names)
    for index, path in enumerate(names):
        top, _, rest = path.partition("/")
        if _OPTIMIZER.search(path) or _moments(path) & seen:
            found.setdefault(index, "an optimizer's state")
        elif top != "params" and f"params/{rest}" in seen:
            found.setdefault(index, f"{top}, a copy of params")
    return found


def _scaled_elsewhere(names: frozenset[str]) -> dict[str, str]:
    """The scale of each kernel that has one in another module, such as Flax's WeightNorm.

    >>> _scaled_elsewhere(frozenset({"a/out/kernel", "WeightNorm_0/a/out/kernel/scale"}))
    {'a/out/kernel': 'WeightNorm_0/a/out/kernel/scale'}
    """
    found: dict[str, str] = {}
    for path in names:
        *parts, last = path.split("/")
        if _SCALES.fullmatch(last):
            without = ("/".join([*parts[:at], *parts[at + 1 :]]) for at in range(len(parts)))
            found |= {kernel: path for kernel in without if kernel in names}
    return found


def _moments(path: str) -> set[str]:
    """The counts that an optimizer without its classes has beside the moments of a path."""
    moments = re.finditer(r"(?:^|/)(?:mu|nu)/", path)
    return {f"{path[: found.start()]}/count".removeprefix("/") for found in moments}


def without(rules: str, *parts: str, keep: str = "") -> str:
    """Rules that leave out these leaves, or all below a path that ends in a slash.

    They are for all layers: numbers stand for any, but for those in the last name if kept.

    >>> without("zoo.PYTORCH", "model.decoder/")
    'rules=(Rule(r"^model/decoder/.*", ()), *zoo.PYTORCH)'
    """
    end = f"{keep}/" if keep else ""
    names = (f"{numbered(part.removesuffix(end))}{end}" for part in parts)
    left = (f'Rule(r"^{name}{".*" * name.endswith("/")}", ())' for name in names)
    return f"rules=({', '.join(left)}, *{rules})"


def part_of(path: str, other: str) -> str:
    """The start of a path up to the first name that another one doesn't have, and a slash."""
    names, others = (re.split("[/.]", one) for one in (path, other))
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, others, strict=False))
    return "/".join(names[: len(list(same)) + 1]) + "/"


def _parent(path: str) -> str:
    return re.sub(r"(^|[/.])[^/.]*$", "", path)


def _claimed_after(rule: Rule) -> int:
    """0 for leaves that others take sizes from, 2 for those that need them."""
    return 0 if "relative_bias" in rule.roles else 2 if rule.stored.parts else 1


def dtype_of(value: Any) -> Any:
    """The dtype of an array, a shape or a number."""
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def name_of(scheme: Scheme) -> str:
    """The name of a scheme, with that of the scheme inside: "NormMatched(Mimetic)"."""
    name, inner = type(scheme).__name__, getattr(scheme, "like", None)
    return f"{name}({name_of(inner)})" if isinstance(inner, Scheme) else name


def _check_keys_differ(blocks: Sequence[str]) -> None:
    """Raise InputError for two blocks that would draw from one key: see `block_key`."""
    seen: dict[int, str] = {}
    for block in blocks:
        other = seen.setdefault(zlib.crc32(block.encode()), block)
        if other != block:
            raise InputError(
                f"{other} and {block} would get identical weights, since the CRC-32 of their paths "
                "is the same: rename one"
            )
