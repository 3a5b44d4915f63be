"""Impulse initialization: of vision transformers, of windowed attention, of token mixing."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from mimetic_jax.base.errors import InputError
from mimetic_jax.schemes.base import Scheme, both_or_none
from mimetic_jax.schemes.block import Block, Context
from mimetic_jax.schemes.mimetic import Alpha, Beta, Mimetic, pair_sizes, zero_biases
from mimetic_jax.weights.attention import Noise
from mimetic_jax.weights.checks import FILTER, NOT_NEGATIVE, POSITIVE
from mimetic_jax.weights.impulse import (
    Order,
    fixed_targets,
    impulse_matrices,
    impulse_query_key,
    offsets,
    random_offsets,
)

Side = Annotated[int, FILTER]
Positive = Annotated[float, POSITIVE]


@dataclasses.dataclass(frozen=True)
class Impulse(Scheme):
    """Structured initialization: attention maps that start as convolutions with an impulse.

    Query and key are solved for the tree's position table, which must be random (sin-cos tables
    have too low a rank), with fresh noise in every layer. All rows of the table are multiplied by
    `position_scale`. Value and out are mimetic.

    The defaults are those of the authors' released code (osiriszjq/structured_initialization,
    `impulse`); `Impulse.paper()` is the paper's text. With `noise_vo="normal"` and the same block
    key, value and out equal those of `Mimetic()`; with `zero_bias=True` too, arms of the two differ
    in query and key alone.

    Not idempotent: each application scales the table again.

    Attributes:
        amplitude: size of the impulse in the targets of the fit; None leaves query and key
            unchanged.
        noise: standard deviation of the noise in the targets.
        norm: Frobenius norm of each head's query and key; None means 7 √(K / 64).
        kernel_size: side of the filter whose offsets are used, odd, in patches.
        order: which head gets which offset, "released", "random", "scattered" or "positive": see
            `weights.impulse_query_key`.
        position_scale: factor on the position table; 1 leaves it unchanged.
        alpha_vo: α of the value/out product, as in `Mimetic`; None leaves both unchanged.
        beta_vo: β of the value/out product, likewise.
        noise_vo: distribution of that noise, "normal" or "uniform".
        zero_bias: whether the biases of the written kernels become zero instead of staying the
            model's own, PyTorch's U(±1/√D) in the released code.

    Raises:
        InputError: if a field is out of its range, or if the tree does not have exactly one
            position embedding on a known grid.

    Example:
        >>> Impulse.paper().writes(frozenset({"query", "key", "value", "out"})) == {"query", "key"}
        True

    Reference: Structured Initialization for Vision Transformers, eqs. 9-14.
    """

    joint_roles = Mimetic.joint_roles
    uses = frozenset({"grid"})
    amplitude: Positive | None = 1000.0
    noise: Positive = 1.8
    norm: Positive | None = None
    position_scale: Positive = 18.0
    kernel_size: Side = 3
    order: Order = "released"
    alpha_vo: Alpha | None = 0.4
    beta_vo: Beta | None = -0.4
    noise_vo: Noise = "uniform"
    zero_bias: bool = False

    @classmethod
    def paper(cls) -> Self:
        """Return the paper's text as far as it is known: random offsets, no scaled table.

        Appendix A of the paper leaves value and out unchanged. The ratio 40:1 and the norm 2 are
        from a secondary source, because the text available to us lacks its numbers. Reading the 1
        as a standard deviation, and zero biases of query and key, are our interpretation. At
        initialization the impulse is each row's largest weight, but only just: it gets 1% of the
        attention in a ViT-Tiny.

        >>> Impulse.paper().norm
        2.0
        """
        return cls(
            amplitude=40.0,
            noise=1.0,
            norm=2.0,
            position_scale=1.0,
            order="random",
            alpha_vo=None,
            beta_vo=None,
            noise_vo="normal",
            zero_bias=True,
        )

    def validate(self) -> None:
        self._mimetic()  # which checks that both α and β are given or neither

    def _mimetic(self) -> Mimetic:
        """A `Mimetic` that writes the same attention kernels, with this value and out."""
        return Mimetic(
            alpha_qk=None if self.amplitude is None else Mimetic.alpha_qk,
            beta_qk=None if self.amplitude is None else Mimetic.beta_qk,
            alpha_vo=self.alpha_vo,
            beta_vo=self.beta_vo,
            noise=self.noise_vo,
            zero_bias=self.zero_bias,
        )

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        traced = isinstance(self.position_scale, jax.core.Tracer)
        scaled = roles & {"position"} if traced or self.position_scale != 1 else frozenset()
        return scaled | self._mimetic().writes(roles)

    def undone_by(self, written: frozenset[str], later: frozenset[str]) -> frozenset[str]:
        solved = later & written & {"query", "key", "position"}
        return super().undone_by(written, later) | solved

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        written = self.writes(frozenset(block))
        new = zero_biases(block, written)
        if "value" in written:
            # The same block key gives Mimetic's value and out, so that arms of the two schemes
            # differ in query and key alone.
            only_value_out = dataclasses.replace(self._mimetic(), alpha_qk=None, beta_qk=None)
            new |= only_value_out(key, block, context)
        if "query" in written:
            # The half of the key that Mimetic's value and out leave.
            key_qk, _ = jax.random.split(jax.random.clone(key))
            new["query"], new["key"] = self._query_key(key_qk, block, context)
        if "position" in written:
            # All rows, including the class token's, as in the released code.
            new["position"] = block["position"] * self.position_scale
        return new

    def targets(
        self, grid: tuple[int, int], num_heads: int, num_kv_heads: int
    ) -> np.ndarray | None:
        """Return where each head should attend, [H, N, N]; None if a key of `jax.random` decides.

        Heads that share their keys have one target.
        """
        of_groups = fixed_targets(self.order, grid, self.kernel_size, num_kv_heads)
        if of_groups is None:
            return None
        return np.repeat(of_groups, num_heads // num_kv_heads, axis=0)

    def _query_key(
        self, key: jax.Array, block: Block, context: Context
    ) -> tuple[jax.Array, jax.Array]:
        if context.position is None or context.grid is None:
            raise InputError(
                "Impulse needs exactly one position embedding of image patches; this tree has none "
                "or several."
                if context.position is None
                else f"The grid of the {len(context.position)} positions is not known, because "
                "they are not square. Pass grid=(rows, columns)."
            )
        assert self.amplitude is not None  # else neither is written
        sizes = pair_sizes(block, "query", "key")._asdict()
        if context.position.shape[1] != sizes.pop("dim"):
            raise InputError(
                f"query {block.shapes['query']} (width, heads, head width) and positions "
                f"{context.position.shape} must have the same width"
            )
        return impulse_query_key(
            key,
            context.position * self.position_scale,  # the table as this scheme leaves it
            context.grid,
            **sizes,
            kernel_size=self.kernel_size,
            order=self.order,
            amplitude=self.amplitude,
            noise=self.noise,
            norm=self.norm,
        )


@dataclasses.dataclass(frozen=True)
class ImpulseBias(Scheme):
    """Structured initialization of a Swin: each token initially attends to one neighbor.

    The relative position bias at one offset (m, n) gains `strength`; all other biases stay as
    drawn, so that the scale of the rest is that of the model. If each head has a table, head h
    gets the h-th offset of `weights.impulse.offsets`, in every block, at row
    (W−1−m)·(2W−1) + (W−1−n) of the window's side W: Microsoft's code indexes by query − key. If
    the heads of a block share a table, block l gets the l-th, at [W−1+m, W−1+n]: kentaroy47's code
    indexes by key − query. Both start over at the end of the list. At an offset of a neighbor
    outside the window, or outside the grid, the token attends as before.

    Not idempotent: each application adds the strength again.

    Attributes:
        strength: the gain; ours, since the paper gives no number. At 5, with all other biases near
            0, the offset gets ¾ of the attention in a window of 7×7 and 9/10 in one of 4×4.
        kernel_size: side of the filter whose offsets are used, odd.

    Raises:
        InputError: if a field is out of its range, or if the table is not that of a window.

    Example:
        >>> block = Block.of({"relative_bias": jnp.zeros((9, 1))})  # of a window of 2 x 2
        >>> new = ImpulseBias()(jax.random.key(0), block, Context())["relative_bias"]
        >>> print(new.max(), int((new > 0).sum()))
        5.0 1

    Reference: Structured Initialization for Vision Transformers, section 5.3.
    """

    depends_on_layer: ClassVar[bool] = True  # the offset of a shared table
    strength: Positive = 5.0
    kernel_size: Side = 3

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"relative_bias", "shared_bias"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        new = {}
        if "relative_bias" in block:
            table = block["relative_bias"]
            side = math.isqrt(len(table))
            if side**2 != len(table) or side % 2 == 0:
                raise InputError(f"biases {table.shape} are not [(2W-1)^2, H] of a window")
            shifts = offsets(self.kernel_size, table.shape[1])
            by_head = self._added(table.T.reshape(-1, side, side), -shifts)
            new["relative_bias"] = by_head.reshape(-1, side**2).T
        if "shared_bias" in block:
            table = block["shared_bias"]
            if table.shape[0] != table.shape[1] or len(table) % 2 == 0:
                raise InputError(f"biases {table.shape} are not [2W-1, 2W-1] of a window")
            shifts = offsets(self.kernel_size, context.layer + 1)[-1:]
            new["shared_bias"] = self._added(table[None], shifts)[0]
        return new

    def _added(self, tables: jax.Array, shifts: np.ndarray) -> jax.Array:
        """[H, 2W−1, 2W−1] with the strength added at each table's shift from its center."""
        window = (tables.shape[1] + 1) // 2
        if (far := np.abs(shifts).max()) >= window:
            raise InputError(f"an offset of {far} doesn't fit a window of {window}x{window}")
        row, column = (window - 1 + shifts).T
        return tables.at[np.arange(len(tables)), row, column].add(self.strength)


@dataclasses.dataclass(frozen=True)
class ImpulseMixing(Scheme):
    """Impulse initialization of an MLP-Mixer: token mixing starts as a mean of shifts.

    The hidden units of a block come in groups of N, and each group holds the tokens shifted by one
    random offset of a filter: fc1 ∝ [T_1ᵀ … T_rᵀ] and fc2 ∝ [I … I]ᵀ, each scaled to the Frobenius
    norm of PyTorch's default U(±1/√fan_in), plus noise · a draw from that default. Biases are
    unchanged. The paper gives no construction, this one is ours.

    Attributes:
        kernel_size: side of the filters, odd.
        noise: factor on a draw from PyTorch's default, which is added.

    Raises:
        InputError: if a field is out of its range, or if the tokens are not a grid.

    Example:
        >>> block = Block.of({"token_in": jnp.zeros((4, 8)), "token_out": jnp.zeros((8, 4))})
        >>> sorted(ImpulseMixing()(jax.random.key(0), block, Context()))
        ['token_in', 'token_out']

    Reference: Structured Initialization for Vision Transformers, section 5.3.
    """

    joint_roles = (frozenset({"token_in", "token_out"}),)
    uses = frozenset({"grid"})
    kernel_size: Side = 3
    noise: Annotated[float, NOT_NEGATIVE] = 0.1

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return both_or_none(roles, "token_in", "token_out")

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        count, hidden = block.shapes["token_in"]
        if block.shapes["token_out"] != (hidden, count):
            raise InputError(
                f"token_in {(count, hidden)} and token_out {block.shapes['token_out']} are not "
                "[N, F] and [F, N]"
            )
        side = math.isqrt(count)
        grid = context.grid or (side, side)
        if math.prod(grid) != count:
            raise InputError(
                f"token_in {(count, hidden)} mixes {count} tokens, which are not a grid of "
                f"{grid[0]}x{grid[1]}; pass grid=(h, w)"
            )
        if hidden % count:
            raise InputError(
                f"hidden width {hidden} is not a multiple of the {count} tokens of a "
                f"{grid[0]}x{grid[1]} grid"
            )
        key_offsets, key_in, key_out = jax.random.split(key, 3)
        shifts = random_offsets(key_offsets, self.kernel_size, hidden // count)
        # T acts on columns of tokens and a Flax kernel on rows: transposed, side by side.
        gather = jnp.asarray(impulse_matrices(grid, shifts)).transpose(2, 0, 1)
        collect = jnp.tile(jnp.eye(count, dtype=jnp.float32), (hidden // count, 1))
        return {
            "token_in": _like_default(key_in, gather.reshape(count, hidden), self.noise),
            "token_out": _like_default(key_out, collect, self.noise),
        }


def _like_default(key: jax.Array, structure: jax.Array, noise: float) -> jax.Array:
    """A 0/1 structure scaled to the norm of PyTorch's default draw, plus `noise` of such a draw."""
    bound = structure.shape[0] ** -0.5
    norm = bound * math.sqrt(structure.size / 3)
    draw = jax.random.uniform(key, structure.shape, jnp.float32, -bound, bound)
    # Only an empty structure, on a grid smaller than the filter, has a norm below 1.
    return structure * (norm / jnp.linalg.norm(structure).clip(min=1)) + noise * draw
