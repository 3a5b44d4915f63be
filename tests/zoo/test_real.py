"""Real layers of other libraries, found by their names, rewritten and then called.

None of these libraries is among our own requirements; `make real` installs them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mimetic_jax import block_key, rewrite, zoo
from mimetic_jax.schemes import Block, Context, Mimetic
from tests.zoo.cases import CASES, Haliax

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KEY = jax.random.key(7)
SCHEME = Mimetic(alpha_vo=0.1, beta_vo=(-0.4, 0.4))
D, H, T = 64, 4, 5


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of two layers.

    Attributes:
        table: the name of the family that must be found; None of layers of a library.
        params: its tree.
        call: takes the new tree and tokens [T, D], and gives layer 0's tokens and output.
        block: the path of layer 0.
        G, K: heads of key and value, and their width.
        causal: whether a token sees only those before it.
        normalized: whether queries and keys are divided by their root mean square.
        without_out: whether what is called lacks the output projection.
    """

    table: str | None
    params: Any
    call: Callable[[Any, jax.Array], tuple[Any, Any]]
    block: str
    _: dataclasses.KW_ONLY
    G: int = H
    K: int = D // H
    causal: bool = False
    normalized: bool = False
    without_out: bool = False


def alone(call):
    """A layer that is called by itself."""
    return lambda new, x: (x, call(new, x))


# Equinox and Equimo.


def equinox():
    eqx = pytest.importorskip("equinox")

    class Stack(eqx.Module):
        attention: list
        mlp: Any

    options = {"use_query_bias": True, "use_output_bias": True}
    attention = [
        eqx.nn.MultiheadAttention(H, D, **options, key=jax.random.key(i)) for i in range(2)
    ]
    model = Stack(attention, eqx.nn.MLP(D, D, 2 * D, 1, key=jax.random.key(2)))
    call = alone(lambda new, x: new.attention[0](x, x, x))
    return Model(None, model, call, "attention/0")


def equimo():
    models = pytest.importorskip("equimo.models")
    key = jax.random.key(0)
    sizes = {"dim": D, "num_heads": [H], "depths": [2], "num_classes": 3}
    model = models.VisionTransformer(32, 3, patch_size=16, **sizes, key=key)
    call = alone(lambda new, x: new.blocks[0].blocks[0].attn(x, key=key, inference=True))
    return Model("TIMM", model, call, "blocks/0/blocks/0")


# NNX: tunix.


def live(table, model, block, call, **options) -> Model:
    """An NNX module, whose layer `call` gives [1, T, D] for such tokens."""

    def run(new, x):
        nnx.update(model, new)
        return call(model, x[None])[0]

    return Model(table, nnx.state(model, nnx.Param), alone(run), block, **options)


ROTARY = {"num_layers": 2, "vocab_size": 16, "num_heads": H, "head_dim": 32, "num_kv_heads": 2}
LLAMA = ROTARY | {"hidden_dim": 128, "embed_dim": D, "rope_theta": 10_000, "norm_eps": 1e-6}
NOWHERE = jnp.zeros((1, T), jnp.int32)
CAUSAL = jnp.tril(jnp.ones((1, T, T), bool))
UNTURNED = {"cos": jnp.ones((1, T, 16)), "sin": jnp.zeros((1, T, 16))}


def tunix(name, **options):
    def build():
        library = pytest.importorskip(f"tunix.models.{name}.model")
        config = library.ModelConfig(**LLAMA)
        model = getattr(library, name.capitalize())(config, rngs=nnx.Rngs(0))

        def call(model, x):
            given = (NOWHERE, None, CAUSAL)
            if name == "qwen2":
                given = (None, CAUSAL, UNTURNED["sin"], UNTURNED["cos"])
            return model.layers[0].attn(x, *given)[1]

        grouped = {"G": 2, "K": 32, "causal": True}
        return live("LLAMA", model, "layers/0", call, **grouped, **options)

    return build


def tunix_gemma(G):
    def build():
        library = pytest.importorskip("tunix.models.gemma.model")
        names = ("num_layers", "num_heads", "head_dim", "embed_dim", "hidden_dim")
        config = library.ModelConfig(
            **{name: LLAMA[name] for name in names},
            num_kv_heads=G,
            num_embed=16,
            final_logit_softcap=None,
            use_post_attn_norm=False,
            use_post_ffw_norm=False,
            attention_types=[library.AttentionType.GLOBAL] * 2,
        )
        model = library.Gemma(config, rngs=nnx.Rngs(0))
        call = lambda model, x: model.layers[0].attn(x, NOWHERE, None, CAUSAL)[1]  # noqa: E731
        return live("GEMMA", model, "layers/0", call, G=G, K=32, causal=True)

    return build


# PyTorch.


def torch_model(build, table, block, attention="", **options):
    """`build` gives a module and a function that runs it once; layer 0 is caught by a hook."""

    def made():
        torch = pytest.importorskip("torch")
        torch.manual_seed(0)
        model, run = build(torch)

        def call(new, _):
            seen = {}

            def hook(module, args, kwargs, output):
                x = args[0] if args else kwargs["hidden_states"]
                seen["x"] = x[0]
                seen["y"] = (output[0] if isinstance(output, tuple) else output)[0]

            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    zero = "relative_" in name
                    parameter.copy_(torch.from_numpy(np.array(new[name]) * (not zero)))
                for module in model.modules():
                    if isinstance(module, torch.nn.Dropout):
                        module.p = 0.0
                path = ".".join(filter(None, (block, attention)))
                model.get_submodule(path).register_forward_hook(hook, with_kwargs=True)
                # The encoder's fast path for evaluation calls no module.
                model.train(isinstance(model, torch.nn.TransformerEncoder))
                run(model)
            return seen["x"].numpy(), seen["y"].numpy()

        params = {name: value.detach().numpy() for name, value in model.named_parameters()}
        return Model(table, params, call, block, **options)

    return made


def torch_encoder(torch):
    layer = torch.nn.TransformerEncoderLayer(D, H, 128, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2), lambda model: model(torch.randn(1, 6, D))


def swin(torch):
    """One window of 7 x 7 patches."""
    models = pytest.importorskip("timm").models
    sizes = {"img_size": 28, "window_size": 7, "embed_dim": D, "depths": (2,), "num_heads": (H,)}
    return models.SwinTransformer(**sizes), lambda model: model(torch.randn(1, 3, 28, 28))


def of_images(package):
    def build(torch):
        models = pytest.importorskip(package).models
        if package == "timm":
            model = models.VisionTransformer(32, 16, embed_dim=D, depth=2, num_heads=H)
        else:
            model = models.VisionTransformer(32, 16, 2, H, D, 128)
        return model, lambda model: model(torch.randn(1, 3, 32, 32))

    return build


EAGER = {"attn_implementation": "eager"}
COMMON = EAGER | {
    "hidden_size": D,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 128,
    "vocab_size": 64,
}
IMAGES = COMMON | {"image_size": 32, "patch_size": 16}
GROUPED = COMMON | {"num_key_value_heads": 2}
SMALL = EAGER | {"vocab_size": 64}
OPT = {
    "word_embed_proj_dim": D,
    "num_hidden_layers": 2,
    "hidden_size": D,
    "num_attention_heads": H,
    "ffn_dim": 128,
}
T5 = {"d_model": D, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": H}
GEMMA = {"head_dim": D // H, "query_pre_attn_scalar": D // H, "attn_logit_softcapping": None}
SIDES = {"d_model": D} | {
    f"{side}_{name}": number
    for side in ("encoder", "decoder")
    for name, number in (("layers", 2), ("attention_heads", H), ("ffn_dim", 128))
}
SPEECH = SIDES | {"num_mel_bins": 8, "max_source_positions": T, "pad_token_id": 0}

HUGGING_FACE = {
    # The family, the class, the path of layer 0 and of its attention, and the sizes.
    "vit": ("VIT", "ViT", "layers.0.attention", "", IMAGES),
    "dinov2": ("DINOV2", "Dinov2", "encoder.layer.0.attention", "", IMAGES),
    "bert": ("BERT", "Bert", "encoder.layer.0", "attention.self", COMMON),
    "gpt2": ("GPT2", "GPT2", "h.0", "attn", SMALL | {"n_embd": D, "n_layer": 2, "n_head": H}),
    "llama": ("LLAMA", "Llama", "layers.0.self_attn", "", GROUPED),
    "qwen2": ("LLAMA", "Qwen2", "layers.0.self_attn", "", GROUPED),
    "gemma2": ("GEMMA_2", "Gemma2", "layers.0.self_attn", "", GROUPED | GEMMA),
    "phi": ("PHI", "Phi", "layers.0.self_attn", "", COMMON | {"partial_rotary_factor": 1.0}),
    "phi3": ("PHI_3", "Phi3", "layers.0.self_attn", "", GROUPED | {"pad_token_id": 0}),
    "gpt_neox": ("GPT_NEOX", "GPTNeoX", "layers.0", "attention", COMMON),
    "opt": ("WHISPER", "OPT", "decoder.layers.0.self_attn", "", SMALL | OPT),
    "whisper": ("WHISPER", "Whisper", "encoder.layers.0.self_attn", "", SMALL | SPEECH),
    "bart": ("BART", "Bart", "encoder.layers.0.self_attn", "", SMALL | SIDES),
    "t5": ("T5", "T5", "encoder.block.0", "layer.0.SelfAttention", SMALL | T5),
}


def hugging_face(form):
    family, name, block, attention, sizes = HUGGING_FACE[form]

    def build(torch):
        transformers = pytest.importorskip("transformers", minversion="5")
        config = getattr(transformers, f"{name}Config")(**sizes)
        kind = "EncoderModel" if name == "T5" else "Model"
        model = getattr(transformers, name + kind)(config)
        for path, module in model.named_modules():  # without rotation
            if path.endswith("rotary_emb"):
                turn = torch.ones(1, T, D // H), torch.zeros(1, T, D // H)
                module.forward = lambda *_, turn=turn, **__: turn
        given = {"input_ids": torch.arange(T)[None]}
        if hasattr(config, "image_size"):
            given = {"pixel_values": torch.randn(1, 3, 32, 32)}
        if name == "Whisper":
            sounds = torch.randn(1, 8, 2 * T)
            return model, lambda model: model.encoder(sounds)
        return model, lambda model: model(**given)

    return torch_model(
        build,
        family,
        block,
        attention,
        G=sizes.get("num_key_value_heads", H),
        causal=form in ("gpt2", "llama", "qwen2", "gemma2", "phi", "phi3", "gpt_neox", "opt"),
        # BERT's module lacks the output projection, as the residual is added after it.
        without_out=form == "bert",
    )


MODELS = {
    "equinox": equinox,
    "equimo": equimo,
    "tunix_llama3": tunix("llama3"),
    "tunix_qwen2": tunix("qwen2"),
    "tunix_qwen3": tunix("qwen3", normalized=True),
    "tunix_gemma": tunix_gemma(H),
    "tunix_gemma_grouped": tunix_gemma(1),
    "torch_encoder": torch_model(torch_encoder, None, "layers.0.self_attn"),
    "torchvision_vit": torch_model(
        of_images("torchvision"), "TORCHVISION", "encoder.layers.encoder_layer_0.self_attention"
    ),
    "timm_vit": torch_model(of_images("timm"), "TIMM", "blocks.0", "attn"),
    "timm_swin": torch_model(swin, "SWIN", "layers.0.blocks.0", "attn"),
} | {form: hugging_face(form) for form in HUGGING_FACE}


def attend(drawn, x, causal, normalized):
    """Attention of the canonical arrays that the scheme drew."""
    groups = drawn["query"].shape[1] // drawn["key"].shape[1]
    query, key = (np.einsum("td,dhk->thk", x, drawn[role]) for role in ("query", "key"))
    if normalized:
        query, key = (
            array / np.sqrt(np.square(array).mean(-1, keepdims=True)) for array in (query, key)
        )
    value = np.einsum("td,dhk->thk", x, drawn["value"]).repeat(groups, 1)
    logits = np.einsum("thk,shk->hts", query, key.repeat(groups, 1)) / query.shape[-1] ** 0.5
    if causal:
        logits += np.triu(np.full(logits.shape[1:], -np.inf), 1)
    weights = np.asarray(jax.nn.softmax(logits))
    assert np.abs(weights - weights.mean(-1, keepdims=True)).max() > 1e-3
    return np.einsum("hts,shk,hkd->td", weights, value, drawn["out"], optimize=True)


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_a_layer_computes_with_what_the_scheme_drew(build):
    model = build()
    assert zoo.detect(model.params) == model.table
    numbers = {"num_heads": H, "num_kv_heads": model.G}
    new = rewrite(KEY, model.params, SCHEME, **numbers)
    x, output = model.call(new, 3 * jax.random.normal(jax.random.key(1), (T, D)))
    shapes = {"query": (D, H, model.K), "key": (D, model.G, model.K)}
    shapes |= {"value": shapes["key"], "out": (H, model.K, D)}
    block = Block.of({role: jnp.zeros(shape) for role, shape in shapes.items()})
    drawn = SCHEME(block_key(KEY, model.block), block, Context(0, 2))
    drawn = {role: np.asarray(array, np.float64) for role, array in drawn.items()}
    if model.without_out:
        drawn["out"] = np.eye(D).reshape(shapes["out"])
    expected = attend(drawn, np.asarray(x, np.float64), model.causal, model.normalized)
    np.testing.assert_allclose(output, expected, atol=1e-4)


def test_haliaxs_arrays_are_read_as_those_of_the_cases():
    hax = pytest.importorskip("haliax", exc_type=ImportError)
    tree = CASES["levanter_llama_stacked"].params()
    real = jax.tree.map(
        lambda one: hax.named(one.array, [axis.name for axis in one.axes]),
        tree,
        is_leaf=lambda one: isinstance(one, Haliax),
    )
    new, expected = (rewrite(KEY, params, SCHEME) for params in (real, tree))
    jax.tree.map(np.testing.assert_array_equal, *map(jax.tree.leaves, (new, expected)))
    assert jax.tree.structure(new) == jax.tree.structure(real)
