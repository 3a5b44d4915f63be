import csv
import itertools

import jax
import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis import figures, style
from mimetic_jax.analysis.offsets import by_offset, hits
from mimetic_jax.analysis.population import PAIRS, SHARED, add_network
from mimetic_jax.initializers import attention
from mimetic_jax.schemes import Mimetic
from mimetic_jax.train.record import Record
from mimetic_jax.train.verdicts import ArmResult
from mimetic_jax.weights.impulse import offsets
from tests import products

image = pytest.importorskip("matplotlib.image")
DRAWS = np.random.default_rng(0)


@pytest.fixture
def drawn(tmp_path):
    """Draw a figure and read its table; the picture must have the width that is asked for."""

    def draw(name, *arguments, width=None, **options):
        path = tmp_path / "new" / name
        written = figures.DRAW[name](path, *arguments, **options)
        assert written == [path.parent / f"{name}.png", path.parent / f"{name}.csv"]
        shape = image.imread(written[0]).shape
        assert shape[1] <= style.PAGE * style.DPI + 1
        assert width is None or shape[1] == round(width * style.DPI)
        with written[1].open() as file:
            return list(csv.DictReader(file))

    return draw


@pytest.fixture
def pictured(tmp_path, monkeypatch):
    """Draw a figure and keep it, in the place of its files."""
    seen = []
    monkeypatch.setattr(style, "write", lambda figure, *rest: seen.append(figure))

    def pictured(name, *arguments, **options):
        figures.DRAW[name](tmp_path / name, *arguments, **options)
        return seen[-1]

    return pictured


def result(arm, *values, row="", score="accuracy"):
    runs = {
        seed: Record(arm=arm, seed=seed, score=score, value=x, curve=[(0, x / 2), (10, x)])
        for seed, x in enumerate(values)
    }
    return ArmResult(arm, runs, row)


def matrix(rows, **labels):
    """The entries of one matrix of a table, by its labels."""
    chosen = [row for row in rows if all(row[name] == str(v) for name, v in labels.items())]
    cells = [[row[name] for name in row if name.isdecimal()] for row in chosen]
    return np.array([[float(cell) for cell in line if cell] for line in cells])


def maps(layers=3, heads=2, count=7):
    found = DRAWS.random((layers, heads, count, count))
    return list(found / found.sum(-1, keepdims=True))


def test_products(drawn):
    """With the label "1" both query heads share the one key head and the one value head."""
    draw = attention(Mimetic(alpha_qk=0.1))
    trees = {
        str(groups): {
            f"block_{layer}": {"attention": draw(jax.random.key(layer), 12, 2, num_kv_heads=groups)}
            for layer in range(2)
        }
        for groups in (2, 1)
    }
    rows = drawn("products", trees, clip=5)
    assert len(rows) == 2 * 2 * (2 + 2 + 1) * 5
    for label, tree in trees.items():
        layer = {role: of["kernel"] for role, of in tree["block_1"]["attention"].items()}
        value_out = products.value_out(layer["value"], layer["out"])
        for product, head, expected in (
            ("query_key", 2, products.query_key(layer["query"], layer["key"])[1]),
            ("value_out", 1, value_out[0]),
            ("summed", 1, value_out.sum(0)),
        ):
            got = matrix(rows, label=label, layer=2, product=product, head=head)
            np.testing.assert_allclose(got, expected[:5, :5], rtol=1e-4, atol=1e-6)


def test_attention_maps(drawn):
    shown = {"default": maps(), "mimetic": maps(count=5)}
    rows = drawn("attention_maps", shown, layers=(1, 3))
    assert len(rows) == 2 * (7 + 5)
    for label, layer in itertools.product(shown, (1, 3)):
        expected = shown[label][layer - 1].mean(0)
        np.testing.assert_allclose(matrix(rows, label=label, layer=layer), expected, rtol=1e-5)


def test_impulse_maps(drawn):
    shown = {"mimetic": maps(), "impulse": maps()}
    rows = drawn("impulse_maps", shown, (2, 3), layers=(3,))
    share, mass = hits(shown["impulse"][2], (2, 3), offsets(3, 2))
    chosen = {"label": "impulse", "layer": 3, "head": 2}
    got = matrix(rows, **chosen, view="map")
    np.testing.assert_allclose(got, shown["impulse"][2][1, 1:, 1:], rtol=1e-5)
    got = matrix(rows, **chosen, view="offset")
    np.testing.assert_allclose(got, by_offset(shown["impulse"][2][1], (2, 3)), rtol=1e-5)
    row = next(row for row in rows if row["label"] == "impulse" and row["layer"] == "3")
    assert float(row["hit"]) == pytest.approx(share[0], rel=1e-5)
    assert float(row["mass"]) == pytest.approx(mass[0], rel=1e-5)
    assert len(rows) == 2 * 2 * (6 + 3)


def test_reachable(drawn):
    rows = drawn("reachable", dim=24, ranks=(6, 24), width=style.COLUMN)
    assert len(rows) == 2 * (11 * 11 + 11)
    full = [row for row in rows if (row["construction"], row["rank"]) == ("svd", "24")]
    for row in full:
        assert float(row["diagonal"]) == pytest.approx(float(row["beta"]), abs=0.1)


def population(members, scale=1.0):
    """Sums over two layers of random MLPs whose inputs share a shift."""
    layers = {}
    for _ in range(members):
        params = {}
        for block in ("block_0/mlp", "block_1/mlp"):
            first, second = DRAWS.normal(size=(2, 4, 6))
            params[f"{block}/fc1/kernel"] = first + scale * DRAWS.normal(size=(4, 1))
            params[f"{block}/fc2/kernel"] = second.T
        add_network(layers, params)
    return layers


def test_covariance(drawn):
    states = {"initial": population(50, scale=0.0), "trained": population(40)}
    rows = drawn("covariance", states)
    assert len(rows) == 2 * 2 * 12
    expected = states["trained"]["block_1/mlp"].numbers()
    row = rows[36 + PAIRS.index("W1 W1") * 4 + SHARED.index("channel")]
    described = ["2", "block_1/mlp", "trained", "40", "W1 W1", "channel"]
    assert list(row.values())[:6] == described
    assert float(row["value"]) == pytest.approx(expected.covariance[0, 2], rel=1e-5)
    assert float(row["error"]) == pytest.approx(expected.covariance_error[0, 2], rel=1e-5)


def test_curves_of_one_score_share_a_scale(pictured):
    alike = [result("default", 50, 70, row=row) for row in ("short", "long")]
    other = result("default", 200, 210, row="text", score="test_perplexity")
    for results, shared in ((alike, True), ([*alike, other], False)):
        first, second, *_ = pictured("curves", results).axes
        assert first.get_shared_y_axes().joined(first, second) == shared


def test_curves(drawn):
    results = [
        result("default", 60.0, 64.0, row="ResNet style"),
        result("mimetic", 66.0, 68.0, row="ResNet style"),
        result("default", 70.0, row="DeiT style"),
    ]
    rows = drawn("curves", results, width=style.PAGE, epochs={"DeiT style": 4})
    assert len(rows) == 6
    assert [row["epoch"] for row in rows] == ["", "", "", "", "0", "2.5"]
    described = ["ResNet style", "default", "10", "", "62", f"{8**0.5:.6g}", "2"]
    assert list(rows[1].values()) == described


def test_sweep(drawn):
    results = [result("scale_150", 91.0, 92.0), result("scale_50", 90.0), result("default", 86.0)]
    numbers = {"mimetic": {"scale_50": 0.5, "scale_150": 1.5, "scale_400": 4.0}}
    options = {"series": {"of no run": {"a": {"b": 1.0}}, "": numbers}, "lines": ("default",)}
    rows = drawn("sweep", results, label="γ", width=style.COLUMN, **options)
    found = [(row["series"], row["x"], row["mean"], row["n"]) for row in rows]
    assert found == [
        ("mimetic", "0.5", "90", "1"),
        ("mimetic", "1.5", "91.5", "2"),
        ("default", "", "86", "1"),
    ]


def test_sweep_over_rows(drawn):
    """Where rows have the number, the arms are the lines."""
    run = Record(arm="b", seed=0, score="accuracy", value=90.0)
    arms = ("default", "b")
    results = [ArmResult(arm, {0: run}, f"rate {x}") for x in (5, 1) for arm in arms]
    rates = {"rate 1": 1.0, "rate 5": 5.0}
    panels = {"ours": rates, "of no run": {"rate 2": 2.0}}
    rows = drawn("sweep", results, label="rate", panels=panels)
    expected = [("ours", arm, x, "90") for arm in arms for x in ("1", "5")]
    assert [(row["panel"], row["series"], row["x"], row["mean"]) for row in rows] == expected


def test_numbers_on_a_logarithmic_axis_are_its_ticks(pictured):
    results = [result("default", 80.0, row=row) for row in ("fast", "slow", "slower")]
    panels = {"": {"slower": 5e-4, "slow": 1e-3, "fast": 4e-3}}
    figure = pictured("sweep", results, label="rate", panels=panels, log=True)
    expected = ["0.0005", "0.001", "0.004"]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == expected


def test_a_legend_of_many_long_names_is_inside(pictured):
    """And horizontal lines, which may have the color of another, are dashed."""
    names = ["mean_shift", "zero_bias", "normal", "learned_sum", "norm_matched_50", "constant_bias"]
    series = {name: {name: float(number)} for number, name in enumerate(names[:4])}
    results = [result(name, 80.0, 81.0) for name in names]
    figure = pictured("sweep", results, label="b", series={"": series}, lines=names[4:])
    figure.draw_without_rendering()
    [legend] = figure.legends
    extent = legend.get_window_extent()
    assert 0 <= extent.x0 < extent.x1 <= figure.bbox.x1
    flat = [line for line in figure.axes[0].lines if line.get_linestyle() in ("--", "-.")]
    assert [line.get_label() for line in flat] == names[4:]


@pytest.mark.parametrize(
    ("name", "drawn", "options", "words"),
    [
        ("products", {"a": {"mlp": {"kernel": np.ones((2, 3))}}}, {}, "^a has no attention layer"),
        ("attention_maps", {"a": maps()}, {"layers": (4,)}, "^a has layers 1 to 3: there is no la"),
        ("sweep", [result("a", 1.0)], {"label": "b"}, "^none of these has a number for b: a$"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(name, drawn, options, words, tmp_path):
    with pytest.raises(InputError, match=words):
        figures.DRAW[name](tmp_path / name, drawn, **options)
    assert not list(tmp_path.iterdir())


def test_the_same_figure_is_the_same_bytes(tmp_path):
    options = {"dim": 4, "ranks": (2,)}
    once, twice = (figures.DRAW["reachable"](tmp_path / name, **options) for name in ("a", "b"))
    for first, second in zip(once, twice, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_the_color_scale_ignores_a_few_entries():
    noise = DRAWS.uniform(-1, 1, 10_000)
    noise[:3] = -50
    assert style.limit([noise]) == pytest.approx(1, abs=0.01)
    assert style.limit([np.zeros(3)]) == 1
