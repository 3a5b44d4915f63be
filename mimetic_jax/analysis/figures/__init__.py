"""The papers' figures, drawn from networks and results: a function per kind of figure.

Each function writes PATH.png and PATH.csv, the plotted numbers with a header and one observation
per line, and returns the two paths. PATH has no suffix. Layers count from 1.

From weights, `trees` being a parameter tree per label:
    products(path, trees, *, clip=64, layers=(), leaves={})

From activations, `maps` being what `analysis.attention.attention_maps` returns per label, `ranks`
what `analysis.rank.stable_ranks` does, `residuals` what `analysis.residual` does:
    attention_maps(path, maps, layers=(1, 4, 11))
    impulse_maps(path, maps, grid, *, layers=())
    stable_rank(path, ranks)
    residual(path, residuals)

From populations, `states` being what `analysis.population.from_population` returns per label:
    covariance(path, states, *, clip=8)

From formulas and draws alone:
    reachable(path, *, dim=192, ranks=(16, 32, 64, 192))
    expected_map(path, *, grid=(16, 16), dim=192, head_dim=64, betas=(0.7, 0.395), gammas=(1, 2))
    span(path, *, widths=(256, 512), sizes=(3, 5, 8), draws=1000)

From training, `results` being what `train.report.ArmResult` reads of finished runs, and `points` a
`figures.gain.Point` for each measured gain:
    curves(path, results, *, title="", epochs=None)
    grid(path, results)
    sweep(path, results, *, label, series=None, panels=None, at=None, lines=(), log=False)
    dots(path, results, *, numbers)
    gain(path, points, *, scheme="mimetic", score="accuracy %", ours="ours")

`analysis.capture.networks(comparison, workdir)` gives what the first two kinds need, for each arm
before and after training: `network.label`, `.model`, `.variables` and `.inputs(count)`.
"""

from collections.abc import Callable

from mimetic_jax.analysis import (
    attention,
    curves,
    expected,
    offsets,
    population,
    products,
    rank,
    reachable,
    residual,
    span,
)
from mimetic_jax.analysis.figures import dots, gain, grid, sweep
from mimetic_jax.train.store.places import AnyPath

DRAW: dict[str, Callable[..., list[AnyPath]]] = {
    "products": products.draw,
    "attention_maps": attention.draw,
    "reachable": reachable.draw,
    "expected_map": expected.draw,
    "impulse_maps": offsets.draw,
    "stable_rank": rank.draw,
    "residual": residual.draw,
    "span": span.draw,
    "covariance": population.draw,
    "curves": curves.draw,
    "dots": dots.draw,
    "grid": grid.draw,
    "sweep": sweep.draw,
    "gain": gain.draw,
}
"""Functions by the names that `papers` gives them."""
