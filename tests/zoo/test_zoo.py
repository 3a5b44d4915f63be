"""Trees of every family: found by their names, rewritten, then used as the models use them."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError, Rule, check, fit, plan, rewrite, zoo
from mimetic_jax.schemes import CorrelatedMLP, Mimetic, Scheme, SinCos
from tests.zoo.cases import (
    CASES,
    HEADS,
    KEY,
    SCHEME,
    STOCK,
    WIDE,
    D,
    F,
    L,
    N,
    V,
    big_vision,
    leaves_of,
    maxtext,
    nested,
    ones,
)

QKV = STOCK[:3]
EMBEDDINGS = ("embedding", "unembedding")

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@every_case
def test_the_model_computes_with_what_the_scheme_drew_and_the_rest_stays(case):
    before = case.params()
    planned = plan(before, SCHEME, **case.numbers)
    assert planned.table == case.table
    assert zoo.detect(before) == (case.table if case.table in zoo.FAMILIES else None)
    expected = set(case.attention_kernels())
    if case.bias:
        expected |= {case.bias_of(*layer)[0] for layer in case.attention_kernels().items()}
    written = {write.path for write in planned}
    assert written == {case.path(path.format(i)) for path in expected for i in range(L)}
    new = rewrite(KEY, before, SCHEME, **case.numbers)
    assert [np.sign(layer.value_out) for layer in check(new, **case.numbers)] == [-1, 1]
    after = leaves_of(new)
    for path, leaf in leaves_of(before).items():
        assert np.array_equal(leaf, after[path]) == (path not in written), path
    for layer in range(L):
        case.assert_drawn(after, layer)


@dataclasses.dataclass(frozen=True)
class Numbered(Scheme):
    """Writes arrays whose every entry differs."""

    depends_on_layer = True
    roles: frozenset[str]

    def writes(self, roles):
        return roles & self.roles

    def draw(self, key, block, context):
        return {
            role: numbered(block.shapes[role]) + 0.5 * context.layer
            for role in self.writes(frozenset(block))
        }


def numbered(shape):
    return jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)


@every_case
def test_mlps_and_positions(case):
    params = case.params()
    mlp = Numbered(frozenset({"mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias"}))
    if case.mlp:
        old, new = leaves_of(params), leaves_of(rewrite(KEY, params, mlp, **case.numbers))
        written = {path for path in old if not np.array_equal(old[path], new[path])}
        assert len(written) == (4 if case.bias else 2) * (L if case.axis is None else 1)
        for i in range(L):
            kernels = zip(case.mlp_kernels().items(), (D, F), (F, D), strict=True)
            for (path, form), width, outputs in kernels:
                y = case.apply(new, path, form, i, np.eye(width))
                bias = numbered((outputs,)) + 0.5 * i if case.bias else 0
                np.testing.assert_allclose(y, numbered((width, outputs)) + 0.5 * i + bias)
    else:
        with pytest.raises(InputError, match=r"matches nothing|no leaf beside it"):
            rewrite(KEY, params, mlp, **case.numbers)
    if case.position:
        new = rewrite(KEY, params, Numbered(frozenset({"position"})), **case.numbers)
        table = leaves_of(new)[case.path(case.position[0])]
        np.testing.assert_array_equal(table.reshape(N, D), numbered((N, D)))
    else:
        with pytest.raises(InputError, match="matches nothing"):
            rewrite(KEY, params, SinCos(), **case.numbers)


def absorbed(case, leaves, factors):
    """The leaves with each kernel divided by what multiplies its axis d, the stream."""
    new = dict(leaves)
    for path, form in (case.attention_kernels() | case.mlp_kernels()).items():
        place = "before" if form.startswith("td") else "after"
        kind = "mlp" if path in case.mlp_kernels() else "attention"
        factor = math.prod(
            factors.get(f"{place} {what}", np.ones((L, D))) for what in (kind, "both")
        )
        axes = case.kernel_axes(form)
        shape = [n if axis in "ld" else 1 for axis, n in zip(axes, case.shape(axes), strict=True)]
        if case.axis is not None:
            by = factor if axes.index("l") < axes.index("d") else factor.T
            new[path] = new[path] / by.reshape(shape)
            continue
        for i in range(L):
            new[path.format(i)] = new[path.format(i)] / factor[i].reshape(shape)
    return new


WITH_NORMS = {name: case for name, case in CASES.items() if case.norms}
FOLDED = [name for name, case in WITH_NORMS.items() if case.table != "COMMON"]


@pytest.mark.parametrize("name", FOLDED)
def test_fit_reads_the_scheme_under_any_gains_and_scales(name):
    """A network of other gains is the same function if the kernels are divided by as much."""
    case, random, betas = CASES[name], np.random.default_rng(0), (-0.4, 0.4)
    scheme = (Mimetic(beta_vo=betas), *([CorrelatedMLP(0.5)] if case.mlp else []))
    drawn = rewrite(jax.random.key(3), case.params(), scheme, **case.numbers)
    fresh = fit(drawn, **case.numbers)
    factors = {
        place: random.choice([-1, 1], (L, D)) * random.uniform(0.5, 2, (L, D))
        for place in case.norms.values()
        if place
    }
    other = case.tree(absorbed(case, case.leaves(drawn), factors) | case.gains(factors))
    found = fit(other, **case.numbers)
    assert len(found) == L
    for one, right, beta in zip(found, fresh, betas, strict=True):
        assert one.value_out.beta == pytest.approx(beta, abs=0.12)
        for pair in ("query_key", "value_out"):
            got, expected = getattr(one, pair), getattr(right, pair)
            assert got.alpha == pytest.approx(expected.alpha, rel=1e-3, abs=1e-4)
            assert got.beta == pytest.approx(expected.beta, rel=1e-3, abs=1e-4)
        if case.mlp:
            assert one.mlp.rho == pytest.approx(0.5, abs=0.1)
            assert one.mlp.rho == pytest.approx(right.mlp.rho, abs=1e-3)
    note = check(other, **case.numbers).note
    before = any(place.startswith("before") for place in factors)
    assert ("kernels alone" in note) != before
    # MaxText's norms of queries multiply by gains over a head's columns, or over all.
    assert ("unknown" in note) == any("query_norm" in name for name in case.others)


@pytest.mark.parametrize("name", sorted(WITH_NORMS.keys() - set(FOLDED)))
def test_norms_of_layers_that_no_family_knows_are_named_and_not_folded(name):
    case = CASES[name]
    found = check(case.params(), **case.numbers)
    assert not any(layer.folded for layer in found)
    assert "of the kernels alone; unknown, not folded:" in found.note
    for path in case.norms:
        layer = case.at(path).format("#").rpartition("/")[0]
        assert re.sub(r"\d+", "#", case.path(layer)) in found.note


@pytest.mark.parametrize(
    ("name", "embedding", "unembedding"),
    [
        ("flax_stacked", "embed/embedding", "lm_head/kernel"),
        ("flax_stacked", "Embed_0/embedding", "unembed/kernel"),
        ("flax_gpt2", "transformer/wte/embedding", "lm_head/kernel"),
        ("nanogpt", "transformer/wte/weight", "lm_head/weight"),
        ("easydel_phi", "model/embed_tokens/embedding", "lm_head/kernel"),
        ("llama", "model/embed_tokens/weight", "lm_head/weight"),
        ("gpt_neox", "embed_in/weight", "embed_out/weight"),
        ("gpt_neox", "gpt_neox/embed_in/weight", "lm_head/weight"),
        ("whisper", "decoder/embed_tokens/weight", "lm_head/weight"),
        ("bert", "bert/embeddings/word_embeddings/weight", ""),
        ("t5", "shared/weight", "lm_head/weight"),
        ("tunix_llama", "embedder/input_embedding", "lm_head/w"),
        ("gemma", "embedder/input_embedding", ""),
        ("maxtext_llama", "params/token_embedder/embedding", "params/decoder/logits_dense/kernel"),
    ],
)
def test_families_know_the_embedding_of_tokens(name, embedding, unembedding):
    case, random = CASES[name], np.random.default_rng(0)
    paths = dict(zip(EMBEDDINGS, (embedding, unembedding), strict=True))
    kept = {role: random.normal(size=(V, D)) for role, path in paths.items() if path}
    leaves = {
        paths[role]: table.T if paths[role].endswith(("/kernel", "/w")) else table
        for role, table in kept.items()
    }
    tree = case.params() | case.tree(leaves)
    if not case.dots:  # of nested names some are in both
        tree = nested(leaves_of(case.params()) | leaves)
    assert plan(tree, SCHEME, **case.numbers).table == case.table
    found = {
        role: block[role]
        for _, _, block in mimetic_jax.blocks(tree, **case.numbers)
        for role in block
        if role in EMBEDDINGS
    }
    assert found.keys() == kept.keys()
    for role, table in kept.items():
        np.testing.assert_allclose(found[role], table, rtol=1e-6)


def test_every_family_has_a_case():
    """Others have tests of their own below."""
    assert zoo.FAMILIES.keys() - {case.table for case in CASES.values()} == {"GEMMA_1", "SWIN"}


def test_gemma_1_is_llama_with_one_added_to_its_gains():
    case = CASES["llama"]
    both = (
        mimetic_jax.blocks(case.params(), rules=rules, **case.numbers)
        for rules in (zoo.LLAMA, zoo.GEMMA_1)
    )
    for (path, _, block), (path_too, _, block_too) in zip(*both, strict=True):
        assert path == path_too
        assert block.keys() == block_too.keys()
        for role in block:
            added = np.asarray(block_too[role]) - np.asarray(block[role])
            np.testing.assert_allclose(added, float(role.endswith("_gain")), atol=1e-6)


def test_a_dtype_of_fewer_digits_keeps_the_products():
    case = CASES["t5"]
    params = {name: jnp.asarray(leaf, jnp.bfloat16) for name, leaf in case.params().items()}
    new = rewrite(KEY, params, SCHEME, **case.numbers)
    assert {leaf.dtype for leaf in new.values()} == {jnp.dtype(jnp.bfloat16)}
    case.assert_drawn({name: np.asarray(leaf, float) for name, leaf in new.items()}, 1, 0.03)


def test_two_position_tables_are_an_error_for_images():
    tree = big_vision("img/").params() | big_vision("txt/").params()
    with pytest.raises(InputError, match="Cannot tell the grid of"):
        rewrite(KEY, tree, SinCos())
    image = tree["img"] | {"embedding": {"kernel": jnp.ones((4, 4, 3, D))}}
    new = rewrite(KEY, image, SinCos())
    assert float(jnp.abs(new["pos_embedding"]).max()) == pytest.approx(1)


def test_paligemma_is_two_families():
    cases = (big_vision("img/"), CASES["big_vision_gemma_scan"])
    tree = {path: leaf for case in cases for path, leaf in leaves_of(case.params()).items()}
    with pytest.raises(InputError, match=r"pass rules=\(\*zoo\.\w+, \*zoo\.\w+\)"):
        zoo.detect(nested(tree))
    rules = (*zoo.GEMMA, *zoo.BIG_VISION)
    new = leaves_of(rewrite(KEY, nested(tree), SCHEME, rules=rules))
    for case in cases:
        case.assert_drawn(new, 1)


def test_another_scan_axis_of_maxtext_is_an_error():
    leaves = leaves_of(maxtext().params())
    moved = {path: np.moveaxis(x, 1, 0) if x.ndim == 4 else x for path, x in leaves.items()}
    with pytest.raises(InputError, match=r"knows .*self_attention/query/kernel of shape"):
        rewrite(KEY, nested(moved), SCHEME)


@pytest.mark.parametrize("layer", ["layers", "layers_{}"])
def test_maxtext_with_heads_fused_along_one_axis_needs_a_rule(layer):
    """`fused_qkv` of models other than GPT-3: the order depends on the mesh."""
    attention = {"qkv_proj/kernel": "td,dmk->tmk", "out/kernel": HEADS[-1]}
    case = dataclasses.replace(maxtext(layer, **WIDE), attention=attention)
    with pytest.raises(InputError, match=r"knows \S+qkv_proj/kernel"):
        rewrite(KEY, case.params(), SCHEME)
    layout = "d (h+2g) k" if "{}" in layer else "d l (h+2g) k"
    rule = Rule("qkv_proj/kernel", QKV, layout, within="self_attention$", form=True)
    numbers = {"num_heads": case.H, "num_kv_heads": case.G}
    rules = (rule, *zoo.MAXTEXT_LLAMA)
    case.assert_drawn(leaves_of(rewrite(KEY, case.params(), SCHEME, rules=rules, **numbers)), 1)


@pytest.mark.parametrize("layer", ["layers", "layers/layers_0"])
def test_maxtexts_attention_without_its_mlp_is_asked_for(layer):
    """Whether logits are divided by √K is read off the leaves beside it."""
    leaves = leaves_of(maxtext(layer).params())
    tree = {path: leaf for path, leaf in leaves.items() if "mlp" not in path}
    with pytest.raises(InputError, match=r"pass rules=\(\*attention_rules\(.*undivided=…"):
        plan(tree, SCHEME)


@pytest.mark.parametrize(
    ("name", "shown"), [("maxtext_llama", True), ("maxtext_gemma3", False), ("t5", True)]
)
def test_the_plan_shows_the_factor_of_models_that_do_not_divide_logits(name, shown):
    case = CASES[name]
    planned = plan(case.params(), SCHEME, **case.numbers)
    layouts = {write.role: write.layout for write in planned}
    assert layouts["query"].endswith(" / √K") == shown
    assert not layouts["key"].endswith("√K")
    assert zoo.FAMILIES[case.table].note in " ".join(str(planned).split())


def test_windows_show_their_heads():
    """The stages of a Swin have other numbers of heads, which its tables of biases have."""
    shapes = {}
    for stage, heads in enumerate((2, 4)):
        width, layer = 8 * heads, f"layers.{stage}.blocks.0.attn."
        shapes[f"{layer}relative_position_bias_table"] = (169, heads)
        shapes |= {f"{layer}qkv.weight": (3 * width, width), f"{layer}proj.weight": (width, width)}
    assert zoo.detect(ones(shapes)) == "SWIN"
    new = rewrite(KEY, ones(shapes), Mimetic())
    for stage, heads in enumerate((2, 4)):
        query, key, _ = np.split(new[f"layers.{stage}.blocks.0.attn.qkv.weight"], 3)
        for q, k in zip(np.split(query, heads), np.split(key, heads), strict=True):
            assert np.einsum("kd,kd->", q, k) / 8 > 0.9


def test_nemotrons_mixers_are_attention_or_state_spaces():
    shapes = {"q_proj": (D, D), "k_proj": (16, D), "v_proj": (16, D), "o_proj": (D, D)}
    attention = {f"backbone.layers.1.mixer.{name}.weight": shapes[name] for name in shapes}
    others = {"in_proj.weight": (2 * F + 12, D), "out_proj.weight": (D, F), "A_log": (4,)}
    tree = attention | {f"backbone.layers.0.mixer.{name}": shape for name, shape in others.items()}
    planned = plan(ones(tree), Mimetic(), num_heads=4, num_kv_heads=2)
    assert {write.path for write in planned} == attention.keys()
    assert planned.table == "COMMON"


def test_zambas_shared_attention_reads_two_streams():
    """Its value reads [x, x₀] and its output writes x alone: no product with the identity."""
    block = "model.layers.1.shared_transf.self_attn."
    tree = {f"{block}{name}_proj.weight": (2 * D, 2 * D) for name in "qkv"}
    tree[f"{block}o_proj.weight"] = (D, 2 * D)
    with pytest.raises(InputError, match=r"shared_transf.* must have the same width"):
        rewrite(KEY, ones(tree), Mimetic(), num_heads=4)


def test_axes_that_nobody_knows_are_refused():
    tree = CASES["levanter_llama_stacked"].params()
    query = tree["transformer"]["layers"]["stacked"]["self_attn"]["q_proj"]
    axes = [f"my_{axis.name}" for axis in query["weight"].axes]
    query["weight"] = type(query["weight"]).of(query["weight"].array, axes)
    with pytest.raises(InputError, match="only key was found"):
        rewrite(KEY, tree, SCHEME)


def test_axes_by_names_tell_gated_mlps():
    rules = zoo.rules_of(CASES["levanter_llama"].params())
    assert {rule.role for rule in rules if rule.read_only} == {"mlp_in", "mlp_gate", "mlp_out"}
