"""The papers' figures, drawn from networks and results: a function per kind of figure.

Each function takes PATH first, without a suffix, writes PATH.png and PATH.csv, the plotted numbers
with a header and one observation per line, and returns the two paths. It raises InputError if
matplotlib isn't installed. Layers count from 1.
"""

from collections.abc import Callable

from mimetic_jax.analysis import (
    attention,
    curves,
    offsets,
    population,
    products,
    reachable,
)
from mimetic_jax.analysis.figures import sweep
from mimetic_jax.train.store.files import AnyPath

DRAW: dict[str, Callable[..., list[AnyPath]]] = {
    "products": products.draw,
    "attention_maps": attention.draw,
    "reachable": reachable.draw,
    "impulse_maps": offsets.draw,
    "covariance": population.draw,
    "curves": curves.draw,
    "sweep": sweep.draw,
}
"""Functions by the names that `papers` gives them."""
