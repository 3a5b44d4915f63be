"""Models of PyTorch, rewritten by their names and then called.

They aren't among our own requirements: `pip install torch torchvision timm transformers`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import block_key, rewrite, zoo
from mimetic_jax.schemes import Block, Context, Mimetic

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KEY = jax.random.key(7)
SCHEME = Mimetic()
H = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, its input, and where its first attention layer is.

    Attributes:
        table: the name of the table that fits.
        block: the path of the block, below which `attention` is the module that is called.
        run: calls the model once.
        causal: whether a token sees only those before it.
        groups: G.
    """

    model: object
    table: str
    block: str
    attention: str
    run: object
    causal: bool = False
    groups: int = H


def torch_encoder():
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(64, H, 128, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2)
    x = torch.randn(1, 6, 64)
    return Case(model, "PYTORCH", "layers.0.self_attn", "", lambda: model(x))


def torchvision_vit():
    torch = pytest.importorskip("torch")
    vision = pytest.importorskip("torchvision")
    model = vision.models.VisionTransformer(32, 16, 2, H, 64, 128)
    block = "encoder.layers.encoder_layer_0.self_attention"
    return Case(model, "PYTORCH", block, "", lambda: model(torch.randn(1, 3, 32, 32)))


def timm_vit():
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")
    model = timm.models.VisionTransformer(32, 16, embed_dim=64, depth=2, num_heads=H)
    return Case(model, "PYTORCH", "blocks.0", "attn", lambda: model(torch.randn(1, 3, 32, 32)))


def hugging_face(build, table, block, attention, **options):
    def case():
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers", minversion="5")
        torch.manual_seed(0)
        model = build(transformers)
        if model.config.model_type in ("llama", "gpt_neox"):  # without rotation
            rotary = next(m for n, m in model.named_modules() if n.endswith("rotary_emb"))
            K = model.config.hidden_size // H
            rotary.forward = lambda x, *_, **__: (torch.ones(1, 5, K), torch.zeros(1, 5, K))
        if model.config.model_type in ("vit", "dinov2"):
            given = {"pixel_values": torch.randn(1, 3, 32, 32)}
        else:
            given = {"input_ids": torch.arange(5)[None]}
        return Case(model, table, block, attention, lambda: model(**given), **options)

    return case


COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 128,
    "attn_implementation": "eager",
}
TEXT = COMMON | {"vocab_size": 64}
SMALL = {"vocab_size": 64, "attn_implementation": "eager"}
IMAGE = COMMON | {"image_size": 32, "patch_size": 16}

CASES = {
    "torch_encoder": torch_encoder,
    "torchvision_vit": torchvision_vit,
    "timm_vit": timm_vit,
    "vit": hugging_face(
        lambda t: t.ViTModel(t.ViTConfig(**IMAGE)), "PYTORCH", "layers.0.attention", ""
    ),
    "dinov2": hugging_face(
        lambda t: t.Dinov2Model(t.Dinov2Config(**IMAGE)),
        "PYTORCH",
        "encoder.layer.0.attention",
        "",
    ),
    "bert": hugging_face(
        lambda t: t.BertModel(t.BertConfig(**TEXT)),
        "PYTORCH",
        "encoder.layer.0",
        "attention.self",
    ),
    "gpt2": hugging_face(
        lambda t: t.GPT2Model(t.GPT2Config(n_embd=64, n_layer=2, n_head=H, **SMALL)),
        "PYTORCH_GPT2",
        "h.0",
        "attn",
        causal=True,
    ),
    "llama": hugging_face(
        lambda t: t.LlamaModel(t.LlamaConfig(num_key_value_heads=2, **TEXT)),
        "PYTORCH",
        "layers.0.self_attn",
        "",
        causal=True,
        groups=2,
    ),
    "qwen2": hugging_face(
        lambda t: t.LlamaModel(t.LlamaConfig(attention_bias=True, **TEXT)),
        "PYTORCH",
        "layers.0.self_attn",
        "",
        causal=True,
    ),
    "gpt_neox": hugging_face(
        lambda t: t.GPTNeoXModel(t.GPTNeoXConfig(**TEXT)),
        "PYTORCH",
        "layers.0",
        "attention",
        causal=True,
    ),
    "gpt_neo": hugging_face(
        lambda t: t.GPTNeoModel(
            t.GPTNeoConfig(
                hidden_size=64,
                num_layers=2,
                num_heads=H,
                attention_types=[[["global", "local"], 1]],
                **SMALL,
            )
        ),
        "PYTORCH",
        "h.0",
        "attn.attention",
        causal=True,
    ),
    "opt": hugging_face(
        lambda t: t.OPTModel(
            t.OPTConfig(
                hidden_size=64,
                num_hidden_layers=2,
                num_attention_heads=H,
                ffn_dim=128,
                word_embed_proj_dim=64,
                **SMALL,
            )
        ),
        "PYTORCH",
        "decoder.layers.0.self_attn",
        "",
        causal=True,
    ),
    "t5": hugging_face(
        lambda t: t.T5EncoderModel(
            t.T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=H, **SMALL)
        ),
        "PYTORCH",
        "encoder.block.0.layer.0",
        "SelfAttention",
    ),
}


@pytest.mark.parametrize("build", CASES.values(), ids=CASES.keys())
def test_a_layer_computes_with_what_the_scheme_drew(build):
    case = build()
    torch = pytest.importorskip("torch")
    model = case.model
    before = {name: value.detach().numpy() for name, value in model.named_parameters()}
    assert zoo.detect(before) == case.table
    new = rewrite(KEY, before, SCHEME, num_heads=H, num_kv_heads=case.groups)
    seen = {}

    def hook(module, args, kwargs, output):
        x = args[0] if args else kwargs["hidden_states"]
        seen["x"], seen["output"] = x[0], (output[0] if isinstance(output, tuple) else output)[0]

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = np.array(new[name])
            parameter.copy_(torch.from_numpy(value * ("relative_attention_bias" not in name)))
            # BERT's module lacks the output projection, as it adds the residual after it.
            if "attention.output" in name and name.endswith("dense.weight"):
                parameter.copy_(torch.eye(64))
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        path = ".".join(filter(None, (case.block, case.attention)))
        model.get_submodule(path).register_forward_hook(hook, with_kwargs=True)
        # The encoder's fast path for evaluation calls no module.
        model.train(isinstance(model, torch.nn.TransformerEncoder))
        case.run()
    x, output = (np.asarray(seen[name], np.float64) for name in ("x", "output"))
    D, G, K = x.shape[-1], case.groups, x.shape[-1] // H
    shapes = {"query": (D, H, K), "key": (D, G, K), "value": (D, G, K), "out": (H, K, D)}
    zeros = Block.of({role: jnp.zeros(shape) for role, shape in shapes.items()})
    drawn = SCHEME(block_key(KEY, case.block), zeros, Context(0, 2))
    drawn = {role: np.asarray(array, np.float64) for role, array in drawn.items()}
    if case.attention == "attention.self":
        drawn["out"] = np.eye(D).reshape(H, K, D)
    key, value = (drawn[role].repeat(H // G, 1) for role in ("key", "value"))
    query = np.einsum("td,dhk->thk", x, drawn["query"])
    logits = np.einsum("thk,sd,dhk->hts", query, x, key) / K**0.5
    if case.causal:
        logits += np.triu(np.full(logits.shape[1:], -np.inf), 1)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("hts,sd,dhk,hke->te", weights, x, value, drawn["out"], optimize=True)
    assert np.abs(weights - weights.mean(-1, keepdims=True)).max() > 1e-3
    np.testing.assert_allclose(output, expected, atol=1e-4)
