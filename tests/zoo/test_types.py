"""The table of types of models, held against what small models of Hugging Face compute.

transformers is none of our own requirements; `make real` installs it.
"""

import dataclasses
import itertools
import re

import jax
import numpy as np
import pytest

from mimetic_jax import torch as mimetic_torch
from mimetic_jax.schemes import PositionalHeads
from mimetic_jax.zoo.family import fitted
from mimetic_jax.zoo.model_config import SIZES, ModelConfig
from mimetic_jax.zoo.model_types import TYPES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N, TOKEN = 12, 7
SIDES = ("encoder_attention_heads", "decoder_attention_heads")
SMALL = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", *SIDES), 4),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 6),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 1),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size"), 96),
    **dict.fromkeys(("num_experts", "num_local_experts"), 4),
    **{"num_key_value_heads": 2, "head_dim": 32, "vocab_size": 100, "num_experts_per_tok": 2},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
ROTARY = [kind for kind in TYPES if ModelConfig.of({"model_type": kind}).rotary]

MATTERS = re.compile(
    "attention|attn|rope|rotary|rotat|theta|scal|multipl|norm|window|sliding|bias|alibi|qk"
    "|soft_?cap|clip|lora|nope|mup|head_dim|pruned_heads|position_embedding_type|layer_types|tie_"
)
"""Names of fields on which attention, positions or the embedding may depend."""
HARMLESS = """
    attention_dropout attention_probs_dropout_prob attn_pdrop activation_dropout
    layer_norm_eps layer_norm_epsilon rms_norm_eps norm_topk_prob
    max_position_embeddings original_max_position_embeddings n_positions
    _attn_implementation sliding_window use_sliding_window max_window_layers layer_types
    _sliding_window_pattern window_size
    use_bidirectional_attention output_attentions reorder_and_upcast_attn
    final_logit_softcapping logits_scaling mlp_bias qkv_bias add_cross_attention layerscale_value
    apply_layernorm layer_norm_elementwise_affine enable_bias do_layer_norm_before
    _remove_final_layer_norm relative_attention_num_buckets relative_attention_max_distance
    scale_decoder_outputs encoder_attention_heads decoder_attention_heads
    """
"""Those that classes read, or keep, and on which none of it depends: masks, norms that tensors
show, biases that the rules of a kernel describe, what comes after the last layer."""


def rotated(x, n, base, columns):
    """Heads [H, K] at position n, as the sources turn them."""
    half, y = columns // 2, x.copy()
    cos, sin = (f(n * base ** (-np.arange(half) / half)) for f in (np.cos, np.sin))
    y[:, :half] = x[:, :half] * cos - x[:, half:columns] * sin
    y[:, half:columns] = x[:, half:columns] * cos + x[:, :half] * sin
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
def test_every_field_that_may_matter_is_of_the_row_or_harmless(classes, kind):
    own = {"rope_parameters", *itertools.chain(*SIZES.values()), *TYPES[kind].fields}
    names = {*classes[kind]().to_dict()} - {"tie_encoder_decoder"}
    assert {name for name in names if MATTERS.search(name)} <= own.union(HARMLESS.split())


@pytest.mark.parametrize("kind", TYPES)
def test_without_its_fields_a_type_is_as_its_class_takes_it(classes, kind):
    """A configuration of the class and a file that states sizes alone are read alike."""
    whole = classes[kind]().to_dict()
    sizes = {*itertools.chain(*SIZES.values()), *SIDES, "model_type", "num_experts_per_tok"}
    sizes -= {"head_dim"}
    stated, bare = (
        dataclasses.asdict(ModelConfig.of(fields))
        for fields in (whole, {name: whole[name] for name in sizes & whole.keys()})
    )
    for found in (stated, bare):
        found["rotary"] = [*itertools.islice(itertools.cycle(found["rotary"] or [None]), 12)]
    assert stated == bare


@pytest.mark.parametrize("kind", TYPES)
def test_the_family_of_a_type_knows_all_leaves_of_its_models(classes, kind):
    import torch
    import transformers

    config = small(classes[kind])
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    shapes = tuple((name, tuple(leaf.shape)) for name, leaf in model.state_dict().items())
    assert fitted(TYPES[kind].family, shapes).complete


def small(of, **sizes):
    names = {field.name for field in dataclasses.fields(of)} | of.attribute_map.keys()
    return of(**{name: size for name, size in (SMALL | sizes).items() if name in names})


@pytest.mark.parametrize("kind", [*ROTARY, "bert", "gpt2"])
def test_a_row_is_what_the_model_computes(classes, attention, kind):
    import torch
    import transformers

    config = small(classes[kind])
    config._attn_implementation = "probe"
    stated = ModelConfig.of(config)
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
        output = model(input_ids=torch.full((1, N), TOKEN), output_hidden_states=True)
    assert len(attention) >= 6
    turned = itertools.cycle(stated.rotary or [None])
    for (_, queries, keys, factor), rotary in zip(attention, turned, strict=False):
        heads, _, width = queries.shape
        sizes = (heads, len(keys), width)
        assert sizes == (stated.num_heads, stated.num_kv_heads or heads, stated.head_dim)
        assert factor == pytest.approx(stated.multiplier or width**-0.5)
        for x, n in itertools.product((queries, keys), (1, 9) if stated.rotary else ()):
            expected = x[:, 0]
            if rotary is not None:
                expected = rotated(expected, n, rotary.base, int(rotary.turned * width))
            np.testing.assert_allclose(x[:, n], expected, atol=1e-3 * np.abs(x).max())
    own = {name for name, _ in attention[0][0].named_parameters()}
    if stated.rotary:
        fused = {"query_key_value.bias", "qkv_proj.bias"}
        assert stated.biases == ({"q_proj.bias", "k_proj.bias"} <= own or bool(own & fused))
        table = model.get_input_embeddings()
        size = 8.0 if stated.embedding is True else stated.embedding or 1.0  # √64
        first = output.hidden_states[0][0, 0].numpy()
        expected = size * table.weight[TOKEN].detach().numpy()
        np.testing.assert_allclose(first, expected, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("kind", ["llama", "mistral", "phi", "phi3", "qwen2", "qwen3", "gpt_neox"])
def test_heads_look_where_the_scheme_for_a_configuration_says(classes, attention, kind):
    """By nothing but the model and its configuration, in the logits of its own attention."""
    import torch
    import transformers

    sizes = {"hidden_size": 256, "num_hidden_layers": 1, "intermediate_size": 384, "head_dim": 64}
    config = small(classes[kind], vocab_size=300, **sizes)
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
