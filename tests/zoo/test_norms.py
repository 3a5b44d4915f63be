"""Gains and scales of every table that states them: `fit` reads the scheme whatever they are.

A network of other gains is the same function if the kernels beside them are divided by as much. By
the einsums of the cases, not by rules: axis d of a kernel is the stream that the norm multiplies.
"""

import jax
import numpy as np
import pytest

from mimetic_jax import check, fit, rewrite, zoo
from mimetic_jax.schemes import CorrelatedMLP, Mimetic
from tests.zoo.test_zoo import CASES, D, L, flat_names, leaves_of, nested

KEY = jax.random.key(3)
BETAS = (-0.4, 0.4)

BEFORE, AFTER = ("before attention", "before mlp"), ("after attention", "after mlp")
BOTH = ("before both",)


def norms(block, names, where=BEFORE, *, adds=0, leaf="scale", axes="d", marks=()):
    """Paths of leaves with what each multiplies, what the model adds to it, and its axes."""
    found = {
        f"{block}/{name}" + (f"/{leaf}" if leaf else ""): (place, adds, axes)
        for name, place in zip(names.split(), where, strict=True)
    }
    return found | dict.fromkeys(marks, ("", 0, "d"))


LLAMA = "input_layernorm post_attention_layernorm"
SANDWICH = "pre_feedforward_layernorm post_feedforward_layernorm"
WHISPER = "self_attn_layer_norm final_layer_norm"
GEMMA_NAMES = "pre_attention_norm pre_ffw_norm post_attention_norm post_ffw_norm"


def gemma(block, axes="d"):
    return norms(block, GEMMA_NAMES, BEFORE + AFTER, adds=1, axes=axes)


NORMS = {
    "vit_jax": norms("Transformer/encoderblock_{}", "LayerNorm_0 LayerNorm_1"),
    "vit_jax_before_linen": norms("Transformer/encoderblock_{}", "LayerNorm_0 LayerNorm_2"),
    "big_vision": norms("Transformer/encoderblock", "LayerNorm_0 LayerNorm_1", axes="ld"),
    "flax_vit": norms("vit/encoder/layer/{}", "layernorm_before layernorm_after"),
    "bonsai_gemma3": norms(
        "language_model/layers/{}",
        f"{LLAMA} {SANDWICH}",
        BEFORE[:1] + AFTER[:1] + BEFORE[1:] + AFTER[1:],
        adds=1,
    ),
    "bonsai_llada": norms("blocks/{}", "attn_norm ff_norm", leaf="weight"),
    "bonsai_dinov3": norms("layer/{}", "norm1 norm2")
    | norms("layer/{}", "layer_scale1 layer_scale2", AFTER, leaf="lambda1"),
    "bonsai_qwen3_vl": norms("model/language_model/layers/{}", LLAMA, leaf="weight"),
    "bonsai_umt5": norms("encoder/block/{}", "layer/0/layer_norm", BEFORE[:1]),
    "bonsai_vjepa2": norms("vjepa2/encoder/layer/{}", "norm1 norm2"),
    "easydel_phi": norms("model/layers/{}", "input_layernorm", BOTH),
    "easydel_phi3": norms("model/layers/{}", LLAMA, leaf="kernel"),
    "easydel_gpt_neox": norms("gpt_neox/layers/{}", LLAMA),
    "flax_gpt2": norms("transformer/h/{}", "ln_1 ln_2"),
    "flax_nanogpt": norms("{}", "ln_1 ln_2"),
    "easylm": norms("transformer/h/{}", "attention_norm ffn_norm", leaf="kernel"),
    "diffusers_unet": norms(
        "down_blocks_{}/attentions_0/transformer_blocks_0", "norm1", BEFORE[:1]
    ),
    "bonsai_qwen3": norms("layers/{}", LLAMA),
    "bonsai_vit": norms("layers/{}", "layernorm_before layernorm_after"),
    "bonsai_whisper": norms("decoder/layers/{}", WHISPER, marks=["decoder/layer_norm/scale"]),
    "tunix_llama": norms("layers/{}", LLAMA, leaf="w"),
    "gemma": gemma("layer_{}"),
    "big_vision_gemma": gemma("llm/layers/{}"),
    "big_vision_gemma_scan": gemma("llm/layers", "ld"),
    "maxtext_llama": norms(
        "params/decoder/layers",
        "pre_self_attention_layer_norm post_self_attention_layer_norm",
        axes="dl",
    ),
    "maxtext_llama_no_scan": norms(
        "params/decoder/layers_{}", "pre_self_attention_layer_norm post_self_attention_layer_norm"
    ),
    "maxtext_gemma3": norms(
        "params/decoder/layers/layers_1",
        "pre_self_attention_norm pre_ffw_norm post_self_attention_norm post_ffw_norm",
        BEFORE + AFTER,
        axes="dl",
    ),
    "maxtext_gpt3": norms(
        "params/decoder/layers", "pre_self_attention_norm mlp/mlp_layer_norm", adds=1, axes="dl"
    ),
    "maxtext_gpt3_no_scan": norms(
        "params/decoder/layers_{}", "pre_self_attention_norm mlp/mlp_layer_norm", adds=1
    ),
    "timm": norms("blocks/{}", "norm1 norm2", leaf="weight"),
    "torchvision": norms("encoder/layers/encoder_layer_{}", "ln_1 ln_2", leaf="weight"),
    "llama": norms("model/layers/{}", LLAMA, leaf="weight"),
    "phi3": norms("model/layers/{}", LLAMA, leaf="weight"),
    "modernbert": norms("layers/{}", "attn_norm mlp_norm", leaf="weight"),
    "vit_of_transformers_5": norms(
        "vit/layers/{}", "layernorm_before layernorm_after", leaf="weight"
    ),
    "whisper": norms(
        "decoder/layers/{}", WHISPER, leaf="weight", marks=["decoder/layer_norm/weight"]
    ),
    "clip": norms("text_model/encoder/layers/{}", "layer_norm1 layer_norm2", leaf="weight"),
    "gpt_neo": norms("h/{}", "ln_1 ln_2", leaf="weight"),
    "gpt_neox": norms("layers/{}", LLAMA, leaf="weight"),
    "t5": norms("encoder/block/{}", "layer/0/layer_norm layer/1/layer_norm", leaf="weight"),
    "jamba": norms("layers/{}", "input_layernorm pre_ff_layernorm", leaf="weight"),
    "gpt2": norms("h/{}", "ln_1 ln_2", leaf="weight"),
    "nanogpt": norms("transformer/h/{}", "ln_1 ln_2", leaf="weight"),
}


def with_norms(norms, leaves, factors):
    """The leaves of a case and its norms, which multiply by factors[place] [L, D]."""
    new = dict(leaves)
    for path, (place, adds, axes) in norms.items():
        stored = factors.get(place, np.ones((L, D))) - adds
        if "l" in axes:
            new[path] = stored if axes == "ld" else stored.T
        else:
            new |= {path.format(i): stored[i] for i in range(L)}
    return new


def absorbed(case, leaves, factors):
    """The leaves with each kernel divided by what multiplies its stream."""
    new = dict(leaves)
    for path, form in case.kernels().items():
        stored = form.split(",")[1].split("->")[0]
        place = "before" if form.startswith("td") else "after"
        kind = "mlp" if path in case.mlp else "attention"
        both = factors.get(f"{place} both", np.ones((L, D)))
        factor = factors.get(f"{place} {kind}", np.ones((L, D))) * both
        shape = [
            n if axis in "ld" else 1 for axis, n in zip(stored, case.shape(stored), strict=True)
        ]
        for i in range(1 if "l" in stored else L):
            by = factor if stored.find("l") < stored.find("d") else factor.T
            by = (by if "l" in stored else factor[i]).reshape(shape)
            new[path.format(i)] = new[path.format(i)] / by
    return new


@pytest.mark.parametrize("name", NORMS)
def test_fit_reads_the_scheme_under_any_gains_and_scales(name):
    assert_fit_reads_the_scheme(CASES[name], NORMS[name])


def assert_fit_reads_the_scheme(case, norms):
    random = np.random.default_rng(0)
    build = flat_names if case.dots else nested
    scheme = (Mimetic(beta_vo=BETAS), *([CorrelatedMLP(0.5)] if case.mlp else []))
    start = build(with_norms(norms, leaves_by_slash(case.params()), {}))
    drawn = rewrite(KEY, start, scheme, **case.numbers)
    fresh = fit(drawn, **case.numbers)
    factors = {
        place: random.choice([-1, 1], (L, D)) * random.uniform(0.5, 2, (L, D))
        for place, _, _ in norms.values()
        if place
    }
    leaves = with_norms(norms, absorbed(case, leaves_by_slash(drawn), factors), factors)
    found = fit(build(leaves), **case.numbers)
    assert len(found) == L
    for one, other, beta in zip(found, fresh, BETAS, strict=True):
        assert one.value_out.beta == pytest.approx(beta, abs=0.12)
        for pair in ("query_key", "value_out"):
            got, expected = getattr(one, pair), getattr(other, pair)
            assert got.alpha == pytest.approx(expected.alpha, rel=1e-3, abs=1e-4)
            assert got.beta == pytest.approx(expected.beta, rel=1e-3, abs=1e-4)
        if case.mlp:
            assert one.mlp.rho == pytest.approx(0.5, abs=0.1)
            assert one.mlp.rho == pytest.approx(other.mlp.rho, abs=1e-3)
    note = check(build(leaves), **case.numbers).note
    before = any(place.startswith("before") for place, _, _ in norms.values())
    assert ("kernels alone" in note) != before
    assert "unknown" not in note


def leaves_by_slash(tree):
    return {path.replace(".", "/"): np.asarray(leaf) for path, leaf in leaves_of(tree).items()}


def test_every_table_with_norms_has_a_case():
    from tests.zoo.test_codebases import CODEBASES

    stated = {name for name, table in zoo.TABLES.items() if any(rule.of_norm for rule in table)}
    cases = {CASES[name].table for name in NORMS}
    cases |= {codebase.table for codebase, norms in CODEBASES.values() if norms}
    alike = {name for name in stated if name.endswith("_PLUS_ONE")}
    assert stated - cases == alike | {"PYTORCH_BIGCODE"}  # has the norms of PYTORCH_GPT2


@pytest.mark.parametrize("name", ["bonsai_gemma3", "llama"])
def test_tables_that_add_one_differ_in_llamas_norms_alone(name):
    case = CASES[name]
    table = zoo.TABLES[f"{case.table}_PLUS_ONE"]
    build = flat_names if case.dots else nested
    tree = build(with_norms(NORMS[name], leaves_by_slash(case.params()), {}))
    views = {plus: dict(gains(tree, plus, case)) for plus in (None, table)}
    added = 1.0 if name == "llama" else 0.0
    assert views[None].keys() == views[table].keys()
    for at, gain in views[None].items():
        np.testing.assert_allclose(views[table][at], gain + added)


def gains(tree, rules, case):
    from mimetic_jax import blocks

    for path, layer, block in blocks(tree, rules=rules, **case.numbers):
        for role in block.keys() & {"attention_gain", "mlp_gain"}:
            yield (path, layer, role), np.asarray(block[role])
