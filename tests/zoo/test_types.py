"""The table of types of models, held against what small models of Hugging Face compute.

transformers is none of our own requirements; `make real` installs it.
"""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from mimetic_jax import torch as mimetic_torch
from mimetic_jax.base.model_config import ModelConfig
from mimetic_jax.base.model_types import TYPES
from mimetic_jax.schemes import PositionalHeads

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N, TOKEN = 12, 7
SIZES = {
    **dict.fromkeys(("hidden_size", "n_embd"), 64),
    **dict.fromkeys(("num_attention_heads", "n_head"), 4),
    **dict.fromkeys(("num_hidden_layers", "n_layer"), 6),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size"), 96),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **{"num_key_value_heads": 2, "head_dim": 32, "rotary_dim": 16, "vocab_size": 100},
    **{"num_experts_per_tok": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
IMAGES = {"rope_parameters": {"rope_theta": 1e6, "mrope_section": [2, 3, 3]}}
MORE = {
    "apertus": {"rope_parameters": {"rope_theta": 1.2e7, "rope_type": "default"}},
    "dots1": {"n_shared_experts": 1},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2},
    "glm4_moe": {"use_qk_norm": True},
    "gpt_oss": {"rope_parameters": {"rope_theta": 1.5e5, "rope_type": "default"}},
    "helium": {"head_dim": 16, "num_key_value_heads": 4},
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text"), IMAGES),
}
# Without a model of text of their own, or with attention that nobody else can compute for them.
NOT_BUILT = {
    *("chameleon", "falcon", "moonshine", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni_text"),
    "t5_gemma_module",
}
BUILT = [kind for kind, row in TYPES.items() if row.pairs and not row.others]


def rotated(x, n, base, columns, pairs):
    """Heads [H, K] at position n, as the sources turn them."""
    half, y = columns // 2, x.copy()
    f = np.arange(half)
    i, j = (f, half + f) if pairs == "halves" else (2 * f, 2 * f + 1)
    cos, sin = np.cos(n * base ** (-f / half)), np.sin(n * base ** (-f / half))
    y[:, i], y[:, j] = x[:, i] * cos - x[:, j] * sin, x[:, j] * cos + x[:, i] * sin
    return y


@pytest.fixture(scope="module")
def classes():
    """Those of configurations, by type."""
    pytest.importorskip("transformers", minversion="5")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING


@pytest.fixture
def attention():
    """What attention gets: (module, queries [H, N, K], keys [G, N, K], factor), call by call."""
    pytest.importorskip("torch")
    utils = pytest.importorskip("transformers.modeling_utils")
    calls = []

    def probe(module, query, key, value, *_, scaling=None, **__):
        calls.append((module, query[0].double().numpy(), key[0].double().numpy(), scaling))
        groups = query.shape[1] // value.shape[1]  # tokens that are alike stay alike
        return value.repeat_interleave(groups, 1).transpose(1, 2).contiguous(), None

    utils.ALL_ATTENTION_FUNCTIONS.register("probe", probe)
    return calls


@pytest.mark.parametrize("kind", TYPES)
def test_every_field_of_a_class_is_known(classes, kind):
    assert ModelConfig.of(classes[kind]()).unknown == ()


@pytest.mark.parametrize("kind", [*sorted({*BUILT} - NOT_BUILT), "bert", "gpt2", "gpt_bigcode"])
def test_a_row_is_what_the_model_computes(classes, attention, kind):
    import torch
    import transformers

    names = {field.name for field in dataclasses.fields(classes[kind])}
    names |= classes[kind].attribute_map.keys()
    sizes = {name: size for name, size in SIZES.items() if name in names}
    config = classes[kind](**sizes | MORE.get(kind, {}))
    config._attn_implementation = "probe"
    stated = ModelConfig.of(config)
    if stated.others:
        pytest.skip("not described")
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
        output = model(input_ids=torch.full((1, N), TOKEN), output_hidden_states=True)
    assert len(attention) >= 6
    turned = itertools.cycle(stated.bases or [None])
    for (_, queries, keys, factor), base in zip(attention, turned, strict=False):
        heads, _, width = queries.shape
        sizes = (heads, len(keys), width)
        assert sizes == (stated.num_heads, stated.num_kv_heads or heads, stated.head_dim)
        assert factor == pytest.approx(stated.multiplier or width**-0.5)
        for x, n in itertools.product((queries, keys), (1, 9) if TYPES[kind].pairs else ()):
            expected = x[:, 0]
            if base is not None:
                columns = int(stated.turned * width)
                expected = rotated(expected, n, base, columns, stated.pairs)
            np.testing.assert_allclose(x[:, n], expected, atol=1e-3 * np.abs(x).max())
    own = {name for name, _ in attention[0][0].named_parameters()}
    if TYPES[kind].pairs:
        fused = {"query_key_value.bias", "qkv_proj.bias", "Wqkv.bias"}
        assert stated.biases == ({"q_proj.bias", "k_proj.bias"} <= own or bool(own & fused))
        gains = {name for name in own if "norm" in name and name[0] in "qk"}
        assert bool(gains) == (TYPES[kind].norms == "gains")
    table = model.get_input_embeddings()
    if TYPES[kind].pairs and hasattr(table, "weight") and "modernbert" not in kind:
        size = 8.0 if stated.embedding is True else stated.embedding or 1.0  # √64
        first = output.hidden_states[0][0, 0].numpy()
        expected = size * table.weight[TOKEN].detach().numpy()
        np.testing.assert_allclose(first, expected, rtol=1e-2, atol=1e-6)


LOOKING = ("cohere", "ernie4_5", "glm", "glm4", "gptj", "llama", "mistral", "phi", "qwen2", "qwen3")


@pytest.mark.parametrize("kind", [*LOOKING, "stablelm", "starcoder2"])
def test_heads_look_where_the_scheme_for_a_configuration_says(classes, attention, kind):
    """By nothing but the model and its configuration, in the logits of its own attention."""
    import torch
    import transformers

    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2} | {
        "n_embd": 256,
        "n_head": 4,
        "n_layer": 1,
        "num_hidden_layers": 1,
        "intermediate_size": 384,
        "head_dim": 64,
        "vocab_size": 300,
        "rotary_dim": 32,
        "pad_token_id": 0,
    }
    names = {field.name for field in dataclasses.fields(classes[kind])}
    config = classes[kind](**{name: size for name, size in sizes.items() if name in names})
    config._attn_implementation = "probe"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    asked = (0, 1, 3, 7)
    scheme = PositionalHeads.for_config(model.config, offsets=asked, sharpness=8.0)
    mimetic_torch.initialize(model, jax.random.key(0), scheme)
    curves = 0
    for seed in range(8):
        attention.clear()
        tokens = np.random.default_rng(seed).integers(1, 300, (1, 64))
        with torch.no_grad():
            model(input_ids=torch.from_numpy(tokens))
        _, queries, keys, factor = attention[0]
        logits = factor * queries @ keys.repeat(len(queries) // len(keys), 0).transpose(0, 2, 1)
        curves += np.array([np.diagonal(logits, -at, 1, 2).mean(1) for at in range(24)]) / 8
    assert curves.argmax(0).tolist() == [*asked]
    np.testing.assert_allclose(curves.max(0), 8, rtol=0.15)
