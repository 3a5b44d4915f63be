"""The covariance of an MLP's weights over a population of networks, in one pass over it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from mimetic_jax import paths
from mimetic_jax.analysis import exchangeable, style
from mimetic_jax.errors import InputError, blaming
from mimetic_jax.rewrite import blocks
from mimetic_jax.train.store.places import AnyPath, Place
from mimetic_jax.weights.empirical import PAIRS, SHARED

# A matrix of 8192² float64 has 512 MiB, and a layer needs a few of them.
_MOST_ENTRIES = 8192


@dataclasses.dataclass
class Moments:
    """Sums over networks for the MLP of one layer, float64.

    The vector of a network is [vec W₁, vec W₂], P = 2 D F entries, unrolled row by row as PyTorch
    stores both: W₁ as [F, D], W₂ as [D, F]. Our kernels are the transposes. So entry f·D + d of the
    first half is W₁[d, f] here, and entry d·F + f of the second half is W₂[f, d].

    Attributes:
        dim: D.
        hidden: F.
        members: networks that were added.
        total: Σ vec, [P].
        products: Σ vec vecᵀ, [P, P].
        feature_total, feature_products: the same sums of `exchangeable.features`.
    """

    dim: int
    hidden: int
    members: int
    total: np.ndarray
    products: np.ndarray
    feature_total: np.ndarray
    feature_products: np.ndarray

    @classmethod
    def empty(cls, dim: int, hidden: int) -> Moments:
        """Sums over no network.

        Raises:
            InputError: if a size is below 2, or P is above 8192.

        Example:
            >>> Moments.empty(16, 32).products.shape
            (1024, 1024)
        """
        size, count = 2 * dim * hidden, exchangeable.FEATURES
        if min(dim, hidden) < 2:
            raise InputError(f"an MLP of {dim} x {hidden} has no pairs of entries: give at least 2")
        if size > _MOST_ENTRIES:
            raise InputError(
                f"the covariance of an MLP of {dim} x {hidden} has {size}² entries, above "
                f"{_MOST_ENTRIES}²: populations are of small networks"
            )
        sums = (np.zeros(size), np.zeros((size, size)), np.zeros(count), np.zeros((count, count)))
        return cls(dim, hidden, 0, *sums)

    def add(self, first: np.ndarray, second: np.ndarray) -> None:
        """Add networks.

        Args:
            first: W₁ [M, D, F].
            second: W₂ [M, F, D].

        Raises:
            InputError: for other shapes, or weights that aren't finite.
        """
        first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
        count = len(first)
        for name, array, sizes in (
            ("W1", first, (self.dim, self.hidden)),
            ("W2", second, (self.hidden, self.dim)),
        ):
            if array.shape != (count, *sizes):
                raise InputError(f"{name} {array.shape} is not {(count, *sizes)}")
            if not np.isfinite(array).all():
                bad = np.flatnonzero(~np.isfinite(array).reshape(count, -1).all(axis=1))
                raise InputError(
                    f"{name} of network {bad[0]} (and {len(bad) - 1} more) of {count} is not finite"
                )
        rows = [array.swapaxes(1, 2).reshape(count, -1) for array in (first, second)]
        vectors = np.concatenate(rows, axis=1)
        found = exchangeable.features(first, second.swapaxes(1, 2))
        self.members += count
        self.total += vectors.sum(0)
        self.products += vectors.T @ vectors
        self.feature_total += found.sum(0)
        self.feature_products += found.T @ found

    def mean(self) -> np.ndarray:
        """The mean vector, [P]."""
        return self.total / self.members

    def covariance(self) -> np.ndarray:
        """The covariance of [vec W₁, vec W₂] over networks, [P, P]; divided by M − 1.

        Raises:
            InputError: for fewer than two networks.
        """
        if self.members < 2:
            raise InputError(f"a population of {self.members} network(s) has no covariance")
        mean = self.mean()
        return (self.products - self.members * np.outer(mean, mean)) / (self.members - 1)

    def second_moment(self) -> np.ndarray:
        """The uncentred form, the mean of vec vecᵀ, [P, P]."""
        return self.products / self.members

    def numbers(self) -> exchangeable.Numbers:
        """The 12 numbers of both forms with standard errors, see `exchangeable.numbers`.

        Raises:
            InputError: for fewer than two networks.
        """
        return exchangeable.numbers(self.members, self.feature_total, self.feature_products)


def from_population(chunks: Iterable[Any], **options: Any) -> dict[str, Moments]:
    """Sums over a population for each MLP, one chunk in memory at a time.

    Args:
        chunks: parameters of some members each: a tree, nested or flat by path
            ("block_0/mlp/fc1/kernel"), whose leaves have an axis of members in front, [M, ...].
        **options: of `mimetic_jax.blocks`: rules, num_heads, num_kv_heads.

    Returns:
        Moments by layer, from input to output: the path of the MLP, with the index of a layer that
        `scan` stacks ("block_1/mlp", "blocks/mlp[1]").

    Raises:
        InputError: as `blocks`; if a chunk has no MLP or other MLPs than those before; as
            `Moments.add`.

    Example:
        >>> chunk = {"mlp/fc1/kernel": np.ones((5, 2, 4)), "mlp/fc2/kernel": np.ones((5, 4, 2))}
        >>> {name: found.members for name, found in from_population([chunk, chunk]).items()}
        {'mlp': 10}
    """
    found: dict[str, Moments] = {}
    for chunk in chunks:
        # `blocks` sees one member; its rearrangements of storage apply to all members at once.
        kernels = jax.vmap(lambda tree: _kernels(tree, options))(chunk)
        if not kernels:
            seen = ", ".join([path for path, _ in paths.flatten(chunk)[0]][:8])
            raise InputError(f"there is no MLP among the paths {seen or '(none)'}")
        if found and found.keys() != kernels.keys():
            raise InputError(
                f"a chunk has the MLPs {', '.join(sorted(kernels))}, those before it "
                f"{', '.join(sorted(found))}"
            )
        for name in sorted(kernels, key=paths.natural):
            first, second = map(np.asarray, kernels[name])
            with blaming(name):
                if name not in found:
                    found[name] = Moments.empty(*first.shape[1:])
                found[name].add(first, second)
    return found


def write_statistics(
    path: Place | AnyPath, initial: Mapping[str, Moments], trained: Mapping[str, Moments]
) -> None:
    """Write what `schemes.Empirical` draws from: two means and 12 covariances per layer, as JSON.

    They are in units of the standard deviations that the kernels had at initialization.

    Args:
        path: of the file; its folder appears if need be.
        initial: the population at initialization, of `from_population`.
        trained: the same networks after training.

    Raises:
        InputError: if the layers differ, a population has fewer than two networks, or a kernel has
            no standard deviation at initialization.
    """
    if initial.keys() != trained.keys():
        raise InputError(
            f"initial layers {', '.join(initial)} are not the trained ones {', '.join(trained)}"
        )
    layers = []
    for name, moments in trained.items():
        units = initial[name].numbers().deviations
        if not (units > 0).all():
            raise InputError(
                f"{name}: standard deviations {units.tolist()} at initialization give no unit"
            )
        numbers = moments.numbers().over(units)
        pairs = {
            pair: dict(zip(SHARED, values, strict=True))
            for pair, values in zip(PAIRS, numbers.centred.value.tolist(), strict=True)
        }
        sizes = {"members": moments.members, "dim": moments.dim, "hidden": moments.hidden}
        layers.append({"name": name, **sizes, "mean": numbers.mean.tolist(), **pairs})
    unit = "standard deviations of the kernels at initialization"
    style.put(path, json.dumps({"unit": unit, "layers": layers}, indent=1) + "\n")


def _kernels(tree: Any, options: Mapping[str, Any]) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Both kernels of every MLP of a tree by the name of its layer."""
    return {
        paths.of_layer(path, layer): (block["mlp_in"], block["mlp_out"])
        for path, layer, block in blocks(tree, **options)
        if {"mlp_in", "mlp_out"} <= block.keys()
    }
