"""Which gains and scales `check` folds, by model: against the products in plain NumPy.

Models of the same names differ in where a norm stands and in whether 1 is added to its gain.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file

from mimetic_jax import InputError, check, fit, zoo
from mimetic_jax.command import files
from tests.products import cosine

D, F, H, K = 48, 96, 4, 12
AT = "model.layers.0."
LLAMA = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
BERT = *(f"attention.attention.{n}" for n in ("query", "key", "value")), "attention.output.dense"


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def kernels(at, attention, mlp=("mlp.fc1", "mlp.fc2")):
    """Attention's weights, output first, of one layer or fused, and those of an MLP."""
    sizes = [(D, D)] * 4 if len(attention) == 4 else [(3 * D, D), (D, D)]
    shapes = dict(zip(attention, sizes, strict=True))
    shapes |= dict.fromkeys(mlp[:-1], (F, D)) | dict.fromkeys(mlp[-1:], (D, F))
    return {
        f"{at}{name}" + ("" if name.endswith("_weight") else ".weight"): draw(*shape, seed=i)
        for i, (name, shape) in enumerate(shapes.items())
    }


def vectors(at, *names):
    return {f"{at}{name}": draw(D, seed=7 + i) for i, name in enumerate(names)}


def expected(tree, attention, mlp, before, after):
    """W_Q W_Kᵀ by head, W_V W_out and W_1 W_2 between what multiplies the stream around them."""

    def weight(name):
        return np.float64(tree[name if name in tree else f"{name}.weight"]).T

    arrays = [weight(name) for name in attention]
    query, key, value, out = arrays if len(arrays) == 4 else (*np.split(arrays[0], 3, 1), arrays[1])
    query, key, value = (before[0][:, None] * x for x in (query, key, value))
    heads = [
        cosine(q @ k.T) for q, k in zip(np.split(query, H, 1), np.split(key, H, 1), strict=True)
    ]
    product = before[1][:, None] * weight(mlp[-2]) @ weight(mlp[-1]) * after[1]
    return heads, cosine(value @ out * after[0]), cosine(product)


LN = ("input_layernorm.weight", "post_attention_layernorm.weight")
FEED = ("pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight")
NORMS = ("norm1.weight", "norm2.weight")
DENSE = ("mlp.fc1", "mlp.fc2")


class Model(NamedTuple):
    """The layer, its attention, MLP and norms; which norm stands before attention and MLP and which
    after them, what is added to each; other leaves."""

    at: str
    attention: tuple[str, ...]
    mlp: tuple[str, ...]
    norms: tuple[str, ...]
    before: tuple[int | None, int | None] = (0, 1)
    after: tuple[int | None, int | None] = (None, None)
    adds: int = 0
    others: Mapping[str, tuple[int, ...]] = {}


def llama(*norms, **fields):
    return Model(AT, LLAMA, GATED, norms or LN, **fields)


def gemma(**fields):
    return llama(*LN, *FEED, before=(0, 2), after=(1, 3), **fields)


def timm(*scales, **fields):
    return Model("blocks.0.", ("attn.qkv", "attn.proj"), DENSE, (*NORMS, *scales), **fields)


def encoder(**fields):
    names = ("self_attn_layer_norm.weight", "final_layer_norm.weight")
    attention = (*LLAMA[:3], "self_attn.out_proj")
    return Model("model.encoder.layers.0.", attention, ("fc1", "fc2"), names, **fields)


APART = {"before": (None, None)}
TOP, EMBEDDED = "../../layer_norm.weight", "../../layernorm_embedding.weight"
MODELS = {
    "llama": llama(),
    "nemotron": llama(adds=1, others={"input_layernorm.bias": (D,)})._replace(mlp=GATED[1:]),
    "gemma 2": gemma(adds=1),
    "gemma 3n": gemma(others={"per_layer_input_gate.weight": (8, D)}),
    "gemma 4": gemma(others={"layer_scalar": (1,)}),
    "olmo 2": llama(LN[1], FEED[1], after=(0, 1), **APART),
    "glm 4": llama(
        *(*LN, "post_self_attn_layernorm.weight", "post_mlp_layernorm.weight"), after=(2, 3)
    ),
    "phi": Model(AT, (*LLAMA[:3], "self_attn.dense"), DENSE, LN[:1], (0, 0)),
    "cohere": llama(LN[0], before=(0, 0)),
    "timm": timm(others={"attn.qkv.bias": (3 * D,)}),
    "deit iii": timm("gamma_1", "gamma_2", after=(2, 3)),
    "dino": timm("ls1.gamma", "ls2.gamma", after=(2, 3)),
    "whisper": encoder(others={TOP: (D,)}),
    "bart": encoder(others={EMBEDDED: (D,), "self_attn.q_proj.bias": (D,)}, **APART),
    "bigbird-pegasus": encoder(others={EMBEDDED: (D,)}),
    "mbart": encoder(others={TOP: (D,), EMBEDDED: (D,)}),
    # What can't be told apart: timm's ResPostBlock and a Block without bias; torch.nn's flag.
    "respost": timm(**APART),
    "torch.nn": Model(
        *("layers.0.", ("self_attn.in_proj_weight", "self_attn.out_proj")),
        *(("linear1", "linear2"), NORMS),
        **APART,
    ),
}


UNKNOWN = {
    *(
        "nemotron",
        "gemma 3n",
        "gemma 4",
        "olmo 2",
        "glm 4",
        "cohere",
    ),
    *("bigbird-pegasus", "respost", "torch.nn"),
}
"""Models whose attention and MLP have common names, and whose layers are no family's: norms stand
where they say, and nothing of it is guessed."""


def tree_of(name):
    model = MODELS[name]
    at = model.at
    tree = kernels(at, model.attention, model.mlp) | vectors(at, *model.norms)
    for path, shape in model.others.items():
        up = path.count("../")
        place = ".".join(at.split(".")[: -1 - up]) + "." if up else at
        tree[f"{place}{path.removeprefix('../' * up)}"] = draw(*shape)
    return tree


@pytest.mark.parametrize("name", MODELS)
def test_products_are_those_that_the_model_computes(name):
    model, tree = MODELS[name], tree_of(name)

    def factors(side):
        norms = [
            None if i is None or name in UNKNOWN else tree[model.at + model.norms[i]] for i in side
        ]
        return [np.ones(D) if x is None else np.float64(x) + model.adds for x in norms]

    checked = check(tree, num_heads=H)
    assert ("of the kernels alone; unknown, not folded" in checked.note) == (name in UNKNOWN)
    (found,) = checked
    heads, value_out, product = expected(
        tree,
        [model.at + layer for layer in model.attention],
        [model.at + layer for layer in model.mlp],
        factors(model.before),
        factors(model.after),
    )
    np.testing.assert_allclose(found.query_key, heads, atol=2e-6)
    assert found.value_out == pytest.approx(value_out, abs=2e-6)
    assert found.mlp == pytest.approx(product, abs=2e-6)
    assert found.gated == (len(model.mlp) == 3)


BARE, ALL = "of the kernels alone", "W_Q W_Kᵀ, W_V W_out, W_1 W_2"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama", "W_Q W_Kᵀ, W_V W_out, up·down with the norm's gain"),
        (
            "gemma 2",
            "W_Q W_Kᵀ with the norm's gain; W_V W_out, up·down with the norm's gain and the "
            "scale after the layer",
        ),
        ("bart", f"{ALL} {BARE}; norms come after the sum and multiply no product"),
        ("respost", f"{ALL} {BARE}; unknown, not folded: blocks.0.norm#.weight"),
    ],
)
def test_the_note_says_by_product_what_was_folded(name, words):
    tree = {k: abs(x) if x.ndim == 1 else x for k, x in tree_of(name).items()}
    assert check(tree, num_heads=H).note == words
    assert not check(tree_of(name), num_heads=H, effective=False).note


def test_rules_without_gains_fold_nothing_and_say_what_they_leave():
    attention = [rule for rule in zoo.LLAMA if not rule.of_norm]
    found = check(tree_of("llama"), num_heads=H, rules=attention)
    assert not found[0].folded
    assert "unknown, not folded: model.layers.0.input_layernorm.weight" in found.note


def test_gains_of_both_signs_are_told_to_be_those_of_another_model():
    tree = tree_of("llama")
    below = np.mean([tree[f"{AT}{name}"] <= 0 for name in LN])
    words = f"{below:.0%} of the gains' entries are not above 0: if the model adds 1 to them"
    assert words in check(tree, num_heads=H).note
    ones = tree | {f"{AT}{name}": 1 + 0.2 * tree[f"{AT}{name}"] for name in LN}
    assert "above 0" not in check(ones, num_heads=H).note


def test_a_gain_of_zeros_is_refused_or_plus_one():
    tree = tree_of("llama") | {f"{AT}{name}": np.zeros(D, np.float32) for name in LN}
    for look in (check, fit):
        with pytest.raises(InputError, match=r"attention_gain is 0 everywhere.*GEMMA_1"):
            look(tree, num_heads=H)
    zeros = check(tree, num_heads=H, rules=zoo.GEMMA_1)
    bare = check(tree, num_heads=H, effective=False)
    assert zeros[0].value_out == pytest.approx(bare[0].value_out, abs=1e-7)


@pytest.mark.parametrize(("model_type", "adds"), [("gemma", 1), ("llama", 0), (None, 0)])
def test_config_json_beside_a_file_tells_gemma_from_llama(tmp_path, capsys, model_type, adds):
    tree = tree_of("llama")
    save_file(tree, tmp_path / "model.safetensors")
    if model_type:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    files.check_file([str(tmp_path / "model.safetensors"), f"--heads={H}"])
    gain = np.float64(tree[f"{AT}{LN[0]}"]) + adds
    value, out = (np.float64(tree[f"{AT}{name}.weight"]).T for name in LLAMA[2:])
    assert f" {cosine(np.diag(gain) @ value @ out):+.3f} " in capsys.readouterr().out


def test_a_gated_mlp_shows_up_down():
    tree = tree_of("llama")
    found = check(tree, num_heads=H)
    assert found[0].means is None
    head = str(found).splitlines()[0]
    assert head.split("  ")[-1].strip() == "up·down"
    assert "W_1" not in head
    assert "up·down aligned with" in str(found)
    assert fit(tree, num_heads=H)[0].mlp is None, "schemes leave a gated MLP alone"
    assert len(fit(tree, num_heads=H).schemes) == 1


def test_heads_of_w_v_w_out_lean_apart():
    tree = tree_of("llama")
    value, out = (tree[f"{AT}{name}.weight"] for name in LLAMA[2:])
    value[:], gain = 0, np.float64(tree[f"{AT}{LN[0]}"])
    value[: 2 * K, : 2 * K], out[:, : 2 * K] = np.eye(2 * K), 0
    out[:K, :K], out[K : 2 * K, K : 2 * K] = np.eye(K) / gain[:K], -np.eye(K) / gain[K : 2 * K]
    found = check(tree, num_heads=H)
    root = np.sqrt(K / D)
    np.testing.assert_allclose(found[0].value_out_by_head[:2], (root, -root), atol=1e-6)
    assert found[0].value_out == pytest.approx(0, abs=1e-6)
    assert "  +1 -1  " in str(found).splitlines()[1]
    assert "W_V W_out of a head aligned with +I in 1, with -I in 1 of 4 heads" in str(found)


def test_grouped_heads_are_asked_for():
    tree = tree_of("llama") | {f"{AT}{name}.weight": draw(20, D) for name in LLAMA[1:3]}
    with pytest.raises(
        InputError,
        match=r"num_heads 12 .*size 20; .* pass num_kv_heads",
    ):
        check(tree, num_heads=12)


def test_fit_says_how_to_take_one_side_of_an_encoder_and_decoder(tmp_path, capsys):
    tree = tree_of("whisper")
    tree |= {name.replace("encoder", "decoder"): array for name, array in tree.items()}
    save_file(tree, tmp_path / "both.safetensors")
    files.fit_file([str(tmp_path / "both.safetensors"), f"--heads={H}"])
    advice = capsys.readouterr().out.rstrip().rpartition("rules=")[2]
    assert advice == """(Rule(r"^model/encoder/.*", ()), *zoo.WHISPER)"""
    files.fit_file([str(tmp_path / "both.safetensors"), f"--heads={H}", f"--rules={advice}"])
    assert "no single scheme" not in capsys.readouterr().out
