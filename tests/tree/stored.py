"""Trees of known storage: each number of a leaf has a place in canonical arrays.

These are an independent truth for what a call writes: the draw of a scheme, put where it belongs.
"""

import dataclasses
import math

import jax
import numpy as np

from mimetic_jax import block_key
from mimetic_jax.schemes import Block, Context

KEY = jax.random.key(5)
ROLES = ("query", "key", "value", "out")


def stored(kernel, inputs, flat, transposed):
    """A canonical kernel, whose first axes are of its inputs, as a library stores it."""
    if flat:
        shape = kernel.shape
        kernel = kernel.reshape(math.prod(shape[:inputs]), math.prod(shape[inputs:]))
        inputs = 1
    axes = [*range(kernel.ndim)]
    return kernel.transpose(*axes[inputs:], *axes[:inputs]) if transposed else kernel


@dataclasses.dataclass
class Stored:
    """The places of all numbers of a tree, and the blocks that they make up.

    Attributes:
        places: of each number of a leaf in the list of all canonical numbers, by path.
        blocks: by path and layer, the shape of each role's array and where it starts in the list.
        factors: of the numbers that are stored divided, by the place where they start.
    """

    places: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    blocks: dict[tuple[str, int | None], dict[str, tuple[tuple[int, ...], int]]] = (
        dataclasses.field(default_factory=dict)
    )
    factors: dict[int, float] = dataclasses.field(default_factory=dict)
    count: int = 0

    def numbers(self, *shape):
        """New numbers of a leaf or of a canonical array."""
        new = np.arange(self.count, self.count + math.prod(shape)).reshape(shape)
        self.count += new.size
        return new

    def add(self, shapes):
        """Leaves that belong to no block."""
        self.places |= {path: self.numbers(*shape) for path, shape in shapes.items()}
        return self

    def block(self, path, layer, shapes):
        """The canonical arrays of a block by role."""
        arrays = {role: self.numbers(*shape) for role, shape in shapes.items()}
        starts = {role: (array.shape, int(array.flat[0])) for role, array in arrays.items()}
        self.blocks.setdefault((path, layer), {}).update(starts)
        return arrays

    def attention(
        self,
        block,
        names=ROLES,
        *,
        sizes=(24, 4, 4, 8),
        flat=True,
        transposed=False,
        stacked=None,
        by_head=False,
        undivided=False,
        leaf="kernel",
    ):
        """Attention under four names, or under those of a fused layer and of the last one.

        `stacked` is (layers, axis); sizes are D, H, G, K.
        """
        d, h, g, k = sizes
        shapes = dict(zip(ROLES, ((d, h, k), (d, g, k), (d, g, k), (h, k, d)), strict=True))
        layers = []
        for layer in range(stacked[0]) if stacked else [None]:
            arrays = self.block(block, layer, shapes)
            if undivided:
                self.factors[int(arrays["query"].flat[0])] = k**-0.5
            kernels = list(arrays.values())
            if len(names) == 2:
                *parts, out = kernels
                fused = np.stack(parts, 2) if by_head else np.concatenate(parts, 1)
                kernels = [fused.reshape(d, -1, k), out]
            inputs = [1] * (len(kernels) - 1) + [2]
            layers.append(
                [stored(*one, flat, transposed) for one in zip(kernels, inputs, strict=True)]
            )
        for name, *arrays in zip(names, *layers, strict=True):
            array = np.stack(arrays, stacked[1]) if stacked else arrays[0]
            self.places["/".join(filter(None, (block, name, leaf)))] = array
        return self

    def mlp(
        self, block, first, second, gate="", *, width=24, hidden=40, transposed=False, leaf="kernel"
    ):
        """An MLP under the names of its layers."""
        shapes = {"mlp_in": (width, hidden), "mlp_out": (hidden, width)}
        shapes |= {"mlp_gate": (width, hidden)} if gate else {}
        arrays = self.block(block, None, shapes).values()
        for name, array in zip(filter(None, (first, second, gate)), arrays, strict=True):
            path = "/".join(filter(None, (block, name, leaf)))
            self.places[path] = array.T if transposed else array
        return self

    def dotted(self):
        """The tree under flat names, as PyTorch's."""
        self.places = {path.replace("/", "."): x for path, x in self.places.items()}
        self.blocks = {(block.replace("/", "."), at): x for (block, at), x in self.blocks.items()}
        return self

    def renamed(self, **names):
        """The tree with parts of its paths replaced."""
        for old, new in names.items():
            self.places = {path.replace(old, new): x for path, x in self.places.items()}
        return self

    def params(self):
        noise = np.random.default_rng(0).normal(size=self.count).astype(np.float32)
        return {path: noise[x] for path, x in self.places.items()}

    def wrong(self, new, scheme):
        """The blocks that are neither as they were nor as the scheme draws them, and those that
        are as they were; no other leaf may differ."""
        params = self.params()
        before, after = (np.zeros(self.count, np.float32) for _ in range(2))
        for path, places in self.places.items():
            before[places], after[places] = params[path], np.asarray(new[path])
        wrong, kept, seen = [], [], np.zeros(self.count, bool)
        for (block, layer), roles in self.blocks.items():
            arrays = {}
            for role, (shape, start) in roles.items():
                part = slice(start, start + math.prod(shape))
                seen[part] = True
                arrays[role] = before[part].reshape(shape) / self.factors.get(start, 1)
            view = Block.of(arrays)
            gated = "mlp_gate" in roles and not scheme.gated
            names = not gated and scheme.writes(frozenset(roles))
            drawn = scheme(block_key(KEY, block, layer), view, Context()) if names else {}
            changed, right = False, True
            for role, (shape, start) in roles.items():
                part = slice(start, start + math.prod(shape))
                expected = np.asarray(drawn.get(role, arrays[role])) * self.factors.get(start, 1)
                changed |= not np.array_equal(before[part], after[part])
                right &= np.allclose(expected.reshape(-1), after[part], atol=1e-5)
            if not right:
                (wrong if changed else kept).append(block)
        assert np.array_equal(before[~seen], after[~seen]), "a leaf of no block was written"
        return wrong, kept
