"""Every table's trees: found by their names, rewritten, then used as the models use them."""

import dataclasses
import math

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
    gemma,
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
    assert planned.table == zoo.detect(before) == case.table
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


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.norms])
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
    assert "unknown" not in note


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
        ("bert", "bert/embeddings/word_embeddings/weight", ""),
        ("t5", "shared/weight", "lm_head/weight"),
        ("tunix_llama", "embedder/input_embedding", "lm_head/w"),
        ("gemma", "embedder/input_embedding", ""),
        ("maxtext_llama", "params/token_embedder/embedding", "params/decoder/logits_dense/kernel"),
        ("t5x", "token_embedder/embedding", "decoder/logits_dense/kernel"),
    ],
)
def test_tables_know_the_embedding_of_tokens(name, embedding, unembedding):
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


def test_every_table_has_a_case():
    """Others add one to their gains, or have tests of their own below."""
    others = zoo.TABLES.keys() - {case.table for case in CASES.values()}
    others = {name for name in others if not name.endswith("_PLUS_ONE")}
    assert not others


@pytest.mark.parametrize(("name", "added"), [("llama", ["attention_gain"]), ("bonsai_gemma3", [])])
def test_tables_that_add_one_differ_in_gains_alone(name, added):
    case = CASES[name]
    tables = (zoo.TABLES[f"{case.table}{end}"] for end in ("", "_PLUS_ONE"))
    one, other = (
        mimetic_jax.blocks(case.params(), rules=rules, **case.numbers) for rules in tables
    )
    found = set()
    for (path, _, block), (path_too, _, block_too) in zip(one, other, strict=True):
        assert path == path_too
        assert block.keys() == block_too.keys()
        for role in block:
            differ = np.asarray(block_too[role]) - np.asarray(block[role])
            np.testing.assert_allclose(differ, float(role in added), atol=1e-6)
            found.add(role)
    assert found >= set(added)


def test_a_dtype_of_fewer_digits_keeps_the_products():
    case = CASES["gpt_neo"]
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


@pytest.mark.parametrize(
    ("cases", "rules"),
    [
        # PaliGemma, and Gemma 2 with two attentions a layer.
        ((big_vision("img/"), CASES["big_vision_gemma_scan"]), (*zoo.GEMMA, *zoo.BIG_VISION)),
        ([maxtext(module=f"self_attention_{kind}") for kind in ("local", "global")], None),
    ],
)
def test_two_kinds_of_attention(cases, rules):
    tree = {}
    for case in cases:
        tree |= leaves_of(case.params())
    new = leaves_of(rewrite(KEY, nested(tree), SCHEME, rules=rules))
    for case in cases:
        case.assert_drawn(new, 1)


def test_a_trained_paligemma_is_written_by_rules_that_leave_out_the_expert():
    case = CASES["openpi"]
    names = {name: f"{name.removesuffix('/w')}_1/w" for name in case.others if "einsum" in name}
    assert set(names.values()) == set(case.attention)
    rules = (*zoo.GEMMA, Rule(".*_1/w", ()), Rule("PaliGemma/img/.*", ()))
    written = {write.path for write in plan(case.params(), SCHEME, rules=rules)}
    assert written == {case.at(name) for name in names}


def test_another_scan_axis_of_maxtext_is_an_error():
    leaves = leaves_of(maxtext().params())
    moved = {path: np.moveaxis(x, 1, 0) if x.ndim == 4 else x for path, x in leaves.items()}
    with pytest.raises(InputError, match="different heads by their layouts"):
        rewrite(KEY, nested(moved), SCHEME)


@pytest.mark.parametrize("layer", ["layers", "layers_{}"])
def test_maxtext_with_heads_fused_along_one_axis_needs_a_rule(layer):
    """`fused_qkv` of models other than GPT-3: the order depends on the mesh."""
    attention = {"qkv_proj/kernel": "td,dmk->tmk", "out/kernel": HEADS[-1]}
    case = dataclasses.replace(maxtext(layer, **WIDE), attention=attention)
    with pytest.raises(InputError, match=r"no rule describes"):
        rewrite(KEY, case.params(), SCHEME)
    layout = "d (h+2g) k" if "{}" in layer else "d l (h+2g) k"
    rule = Rule("(?<=self_attention/)qkv_proj/kernel", QKV, layout, undivided=True)
    numbers = {"num_heads": case.H, "num_kv_heads": case.G}
    rules = (rule, *zoo.MAXTEXT_LLAMA)
    case.assert_drawn(leaves_of(rewrite(KEY, case.params(), SCHEME, rules=rules, **numbers)), 1)


@pytest.mark.parametrize("layer", ["layers", "layers/layers_0"])
def test_maxtexts_attention_without_its_mlp_is_asked_for(layer):
    """Whether logits are divided by √K is read off the leaves beside it."""
    with pytest.raises(InputError, match=r"zoo\.MAXTEXT_?\w* and .*give rules=zoo\.MAXTEXT"):
        plan(maxtext(layer, others={}).params(), SCHEME)


@pytest.mark.parametrize(
    ("name", "shown"), [("maxtext_llama", True), ("maxtext_gemma3", False), ("gpt_neo", True)]
)
def test_the_plan_shows_the_factor_of_models_that_do_not_divide_logits(name, shown):
    case = CASES[name]
    planned = plan(case.params(), SCHEME, **case.numbers)
    layouts = {write.role: write.layout for write in planned}
    assert layouts["query"].endswith(" / √K") == shown
    assert not layouts["key"].endswith("√K")
    assert zoo.NOTES.get(case.table, "") in " ".join(str(planned).split())


def test_windows_show_their_heads():
    """The stages of a Swin have other numbers of heads, which its tables of biases have."""
    shapes = {}
    for stage, heads in enumerate((2, 4)):
        width, layer = 8 * heads, f"layers.{stage}.blocks.0.attn."
        shapes[f"{layer}relative_position_bias_table"] = (169, heads)
        shapes |= {f"{layer}qkv.weight": (3 * width, width), f"{layer}proj.weight": (width, width)}
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
    assert planned.table == "PYTORCH"


def test_zambas_shared_attention_reads_two_streams():
    """Its value reads [x, x₀] and its output writes x alone: no product with the identity."""
    block = "model.layers.1.shared_transf.self_attn."
    tree = {f"{block}{name}_proj.weight": (2 * D, 2 * D) for name in "qkv"}
    tree[f"{block}o_proj.weight"] = (D, 2 * D)
    with pytest.raises(InputError, match=r"shared_transf.* must have the same width"):
        rewrite(KEY, ones(tree), Mimetic(), num_heads=4)


def test_the_key_of_gemma_4s_global_layers_is_the_value():
    """Its products W_Q·W_Kᵀ are written everywhere, V and out where there is a value."""
    case = dataclasses.replace(gemma("layer_{}", **WIDE), others={"/layer_0/skip_scale": (1,)})
    shared = {"q_einsum": (4, D, 32), "k_einsum": (1, D, 32), "attn_vec_einsum": (4, 32, D)}
    layers = {f"layer_{i}/attn/{n}/w": s for i in (2, 3) for n, s in shared.items()}
    vision = {"vision_encoder/transformer/layer_0/attn/q_einsum/w": (2, F, 8)}
    tree = leaves_of(case.params()) | ones(layers | vision)
    assert plan(nested(tree), Mimetic()).table == "GEMMA"
    new = leaves_of(rewrite(KEY, nested(tree), Mimetic()))
    stay = {path for path in layers | vision if "vision" in path or "vec" in path}
    for path in layers | vision:
        assert np.array_equal(new[path], tree[path]) == (path in stay), path
    for layer in (2, 3):
        query, key = (new[f"layer_{layer}/attn/{name}_einsum/w"] for name in "qk")
        assert all(np.trace(head @ key[0].T) > 10 for head in query)
    assert (new["layer_0/attn/attn_vec_einsum/w"] != tree["layer_0/attn/attn_vec_einsum/w"]).all()


def test_maxtexts_global_layers_of_gemma_4_have_no_value():
    block = "params/decoder/layers/global_layer/self_attention"
    shapes = {"query/kernel": (D, L, 4, 8), "key/kernel": (D, L, 2, 8), "out/kernel": (4, L, 8, D)}
    shapes |= {"query_norm/scale": (8, L)}
    tree = ones({f"{block}/{name}": shape for name, shape in shapes.items()})
    planned = plan(tree, Mimetic())
    assert planned.table == "MAXTEXT"
    assert {write.role for write in planned} == {"query", "key"}
    new = rewrite(KEY, tree, Mimetic())
    for layer in range(L):
        query, key = (new[f"{block}/{name}/kernel"][:, layer] for name in ("query", "key"))
        for head in range(4):
            assert np.trace(query[:, head] @ key[:, head // 2].T) / 8 > 0.6


def test_axes_that_nobody_knows_are_refused():
    tree = CASES["levanter_llama_stacked"].params()
    query = tree["transformer"]["layers"]["stacked"]["self_attn"]["q_proj"]
    axes = [f"my_{axis.name}" for axis in query["weight"].axes]
    query["weight"] = type(query["weight"]).of(query["weight"].array, axes)
    with pytest.raises(InputError, match="only key was found"):
        rewrite(KEY, tree, SCHEME)


def test_axes_by_names_tell_gated_mlps():
    rules = zoo.rules_of(CASES["penzai"].params())
    assert {rule.role for rule in rules if rule.read_only} == {"mlp_in", "mlp_gate", "mlp_out"}
