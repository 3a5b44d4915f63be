"""Flax models of Hugging Face transformers 4, rewritten and then called attention by attention.

It isn't among our own requirements: `pip install "transformers<5"`.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import block_key, rewrite, zoo
from mimetic_jax.schemes import Block, Context, Mimetic

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KEY = jax.random.key(7)
D, H, T = 32, 4, 5
WHISPER = {
    "d_model": D,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": H,
    "decoder_attention_heads": H,
    "max_source_positions": 16,
    "num_mel_bins": 8,
    "bos_token_id": 1,
    "decoder_start_token_id": 1,
}
OPT = {
    "num_hidden_layers": 2,
    "hidden_size": D,
    "num_attention_heads": H,
    "word_embed_proj_dim": D,
}
NEO = {
    "num_layers": 2,
    "hidden_size": D,
    "num_heads": H,
    "attention_types": [[["global", "local"], 1]],
}
DISTILBERT = {"n_layers": 2, "dim": D, "n_heads": H}

# By folder: the model, the sizes of its config, its attention and that module's arguments, what the
# model's constructor needs, the path of layer 1, and the path of its attention within.
MODELS = {
    "opt": (
        "OPTForCausalLM",
        OPT,
        ("OPTAttention", D, H),
        {},
        "model/decoder/layers/1",
        "self_attn",
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        WHISPER,
        ("WhisperAttention", D, H),
        {"input_shape": (1, 8, 32)},
        "model/decoder/layers/1",
        "self_attn",
    ),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        NEO,
        ("GPTNeoSelfAttention", "global"),
        {},
        "transformer/h/1",
        "attn/attention",
    ),
    "distilbert": (
        "DistilBertForMaskedLM",
        DISTILBERT,
        ("MultiHeadSelfAttention",),
        {},
        "distilbert/transformer/layer/1",
        "attention",
    ),
}
TABLES = {"distilbert": "DISTILBERT", "gpt_neo": "GPT_NEO", "opt": "OPT", "whisper": "OPT"}


@pytest.mark.parametrize("name", MODELS)
def test_attention_computes_with_what_the_scheme_drew(name, monkeypatch):
    monkeypatch.setenv("USE_TORCH", "0")
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.split(".")[0]) > 4:
        pytest.skip("transformers 5 has no Flax models")
    model_class, sizes, (attention_class, *arguments), inputs, layer, attention = MODELS[name]
    module = importlib.import_module(f"transformers.models.{name}.modeling_flax_{name}")
    config_class = getattr(transformers, model_class.split("For")[0] + "Config")
    config = config_class(vocab_size=20, pad_token_id=0, eos_token_id=2, **sizes)
    params = getattr(module, f"Flax{model_class}")(config, **inputs).params

    table = zoo.detect(params)
    assert table == f"HUGGING_FACE_{TABLES[name]}"
    new = rewrite(KEY, params, Mimetic(), rules=zoo.TABLES[table], num_heads=H)

    shape = (D, H, D // H)
    shapes = dict.fromkeys(("query", "key", "value"), shape) | {"out": (H, D // H, D)}
    block = Block.of({role: jnp.zeros(size) for role, size in shapes.items()})
    drawn = Mimetic()(block_key(KEY, layer), block, Context(1, 2))
    x = 2 * jax.random.normal(jax.random.key(1), (T, D))
    query, key, value = (
        jnp.einsum("td,dhk->thk", x, drawn[role]) for role in ("query", "key", "value")
    )
    logits = jnp.einsum("thk,shk->hts", query, key) / (D // H) ** 0.5
    if name != "distilbert":
        logits = jnp.where(jnp.tril(jnp.ones((T, T))), logits, -jnp.inf)
    expected = jnp.einsum("hts,shk,hkd->td", jax.nn.softmax(logits), value, drawn["out"])

    leaves = new
    for part in f"{layer}/{attention}".split("/"):
        leaves = leaves[part]
    causal = {"causal": True} if name in ("opt", "whisper") else {}
    called = getattr(module, f"Flax{attention_class}")(config, *arguments, **causal)
    tokens = [x[None]] * (3 if name == "distilbert" else 1)
    mask = {"mask" if name == "distilbert" else "attention_mask": jnp.ones((1, T))}
    output = called.apply({"params": leaves}, *tokens, **mask)[0][0]
    np.testing.assert_allclose(output, expected, atol=1e-5)
