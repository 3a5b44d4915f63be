"""The gains and scales of the tables: norms before and after layers, and LayerScale.

A norm's name doesn't say where it stands: Llama's post_attention_layernorm comes before the MLP,
Gemma 2's after attention, OLMo 2's too, Nomic BERT's after the sum. So a rule asks for other leaves
of the block that tell its models from others of the same names. Of what isn't told apart, nothing
is folded.
"""

import dataclasses
import functools
from typing import Any

from mimetic_jax.rules.rule import Rule


def _pair(
    what: str, first: str, second: str, *beside: str, layout: str = "d", **options: Any
) -> tuple[Rule, ...]:
    """The rules for two leaves of a block, by their paths."""
    return tuple(
        Rule(path, f"{kind}_{what}", layout, beside=beside, **options)
        for path, kind in ((first, "attention"), (second, "mlp"))
    )


gains = functools.partial(_pair, "gain")
"""The norms before attention and before the MLP."""
scales = functools.partial(_pair, "scale")
"""What multiplies the outputs of attention and of the MLP before they are added."""


def adding_one(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules for models that multiply by 1 + w in norms of Llama's names."""
    names = ("input_layernorm/", "post_attention_layernorm/", "q_norm/", "k_norm/", "norm/")
    return tuple(
        dataclasses.replace(rule, plus_one=rule.plus_one or rule.path.startswith(names))
        for rule in rules
    )


_PRE_NORM = (
    ("attention_layernorm", "feedforward_layernorm"),  # Apertus
    ("attention_norm", "ffn_norm"),  # Pixtral
    ("attn_norm", "mlp_norm"),  # ModernBERT
    ("attn_norm", "ff_norm"),  # LLaDA
    ("norm_1", "norm_2"),  # MPT
    ("rms_norm1", "rms_norm2"),  # AIMv2
    ("ln_attn", "ln_mlp"),  # Falcon 40B
)
"""Names that stand before the layer in every model that has both."""

_BEFORE_OUTPUT = (
    ("norm", "embed_tokens"),  # Llama, Mistral, Qwen
    ("final_layernorm", "embed_tokens"),  # Phi
    ("final_layer_norm", "embed_tokens"),  # OPT
    ("ln_f", "wte"),  # GPT-J, GPT-Neo
    ("ln_f", "word_embeddings"),  # Falcon, BLOOM
)
"""The norm before the output layer, beside the embedding that may be that layer, too."""


def hugging_face_norms(leaf: str, kernel: str) -> tuple[Rule, ...]:
    """The norms of Hugging Face's names, from those of a norm's scale and of a layer's weight."""

    def at(*names: str) -> tuple[str, ...]:
        return tuple(f"{name}/{leaf}" for name in names)

    def pair(what: str, *names: str, plus_one: bool = False) -> tuple[Rule, ...]:
        return _pair(what, *at(*names[:2]), *names[2:], plus_one=plus_one)

    before, after = functools.partial(pair, "gain"), functools.partial(pair, "scale")

    def other(role: str | tuple[()], name: str, *beside: str) -> Rule:
        return Rule(f"{name}/{leaf}", role, "d" if role else "", beside=beside)

    def sandwich(*marks: str, plus_one: bool) -> tuple[Rule, ...]:
        both = (*at("pre_feedforward_layernorm"), *marks)
        first, second = "(?:input|pre_self_attn)_layernorm", "pre_feedforward_layernorm"
        return (
            *before(first, second, *both, plus_one=plus_one),
            # If experts stand beside the MLP, its output meets another norm first.
            *after(
                "post_(?:attention|self_attn)_layernorm",
                "post_feedforward_layernorm",
                *both,
                *at("!post_feedforward_layernorm_1"),
                plus_one=plus_one,
            ),
        )

    def of_heads(*beside: str, plus_one: bool = False) -> tuple[Rule, ...]:
        return tuple(
            Rule(f"{name}_norm/{leaf}", f"{role}_gain", "k", beside=beside, plus_one=plus_one)
            for name, role in (("q", "query"), ("k", "key"))
        )

    llama = ("input_layernorm", "post_attention_layernorm")
    up, gate = f"mlp/up_proj/{kernel}", f"mlp/gate_proj/{kernel}"
    table = "embedding" if kernel == "kernel" else kernel
    # Its names don't tell whether 1 is added.
    not_gemma = at("!layers/0/pre_feedforward_layernorm")
    whisper = ("self_attn_layer_norm", "final_layer_norm")
    return (
        # Gemma 3, unlike 4 and 3n; Qwen 3, EXAONE 4. Those of OLMo 2 are of all heads together.
        *of_heads(
            *at("../pre_feedforward_layernorm"),
            "!../layer_scalar",
            f"!../per_layer_input_gate/{kernel}",
            plus_one=True,
        ),
        *of_heads(),
        # Gemma 4 (and DiffusionGemma, EmbeddingGemma 2), 3n, TimesFM 2.5; Gemma 2 and 3, T5Gemma.
        *sandwich("layer_scalar", plus_one=False),
        *sandwich(f"per_layer_input_gate/{kernel}", plus_one=False),
        *sandwich("self_attn/scaling", plus_one=False),
        *sandwich(plus_one=True),
        # GLM 4; AFMoE; Jamba; OLMo 2 and 3, EXAONE 4; Nomic BERT.
        *before(*llama, *at("post_self_attn_layernorm")),
        *after("post_self_attn_layernorm", "post_mlp_layernorm", *at("post_attention_layernorm")),
        *before("input_layernorm", "pre_mlp_layernorm", *at("pre_mlp_layernorm")),
        *after("post_attention_layernorm", "post_mlp_layernorm", *at("pre_mlp_layernorm")),
        *before("input_layernorm", "pre_ff_layernorm", *at("pre_ff_layernorm")),
        *after(
            "post_attention_layernorm",
            "post_feedforward_layernorm",
            *at("post_feedforward_layernorm", "!input_layernorm"),
        ),
        other(
            "post_norm",
            "post_(?:attention|mlp)_layernorm",
            *at("post_mlp_layernorm", "!input_layernorm"),
        ),
        # Nemotron, by its biases without a gate; Moonshine's decoder.
        *before(*llama, "input_layernorm/bias", up, f"!{gate}", plus_one=True),
        *before("input_layernorm", "final_layernorm", *at("final_layernorm")),
        other((), "post_attention_layernorm", *at("final_layernorm")),
        # Llama, Mistral, Qwen, GPT-NeoX; Mimi.
        *before(*llama, *at(*llama)),
        *scales("self_attn_layer_scale/scale", "mlp_layer_scale/scale"),
        # One norm for attention and MLP: Phi, Cohere, Falcon 7B, GPT-J.
        other("shared_gain", "input_layernorm", f"self_attn/dense/{kernel}"),
        other("shared_gain", "input_layernorm", f"self_attn/o_proj/{kernel}", up, gate),
        other("shared_gain", "input_layernorm", f"self_attention/dense/{kernel}"),
        other("shared_gain", "ln_1", f"mlp/fc_in/{kernel}", *at("!ln_2")),
        *before("ln_1", "ln_2", f"attn/attention/q_proj/{kernel}"),  # GPT-Neo
        # CLIP; Swin V2; ViT and its kin, with BEiT's LayerScale; DINOv2 and 3, V-JEPA 2.
        *before("layer_norm1", "layer_norm2", *at("!layer_norm3")),
        *after("layernorm_before", "layernorm_after", "attention/self/logit_scale"),
        *before("layernorm_before", "layernorm_after"),
        *scales("(?:lambda|gamma)_1", "(?:lambda|gamma)_2", *at("layernorm_before")),
        *(
            rule
            for mark in ("attention/attention/query", "attention/query", "attention/q_proj")
            for rule in before("norm1", "norm2", f"{mark}/{kernel}")
        ),
        *scales("layer_scale1/lambda1", "layer_scale2/lambda1"),
        # Whisper, mBART, OPT by the last norm of a side; BART by the norm of its embeddings, which
        # BigBird-Pegasus, without biases of attention, has after its layers.
        *before(*whisper, *at("../../layer_norm")),
        *before(*whisper, *at("../../final_layer_norm")),
        *before(*whisper, *at("../../layernorm_embedding"), "!self_attn/q_proj/bias"),
        other("post_norm", "(?:self_attn|final)_layer_norm", *at("../../layernorm_embedding")),
        other((), "encoder_attn_layer_norm"),
        # BERT, DistilBERT; RoBERTa-PreLayerNorm, ESM; T5.
        other("post_norm", "(?:attention/)?output/LayerNorm"),
        other("post_norm", "(?:sa|output)_layer_norm", f"attention/q_lin/{kernel}"),
        *before("attention/LayerNorm", "(?:intermediate/)?LayerNorm", *at("attention/LayerNorm")),
        other("attention_gain", "layer/0/layer_norm"),
        other("mlp_gain", "layer/1/layer_norm", f"layer/1/DenseReluDense/wo/{kernel}"),
        other("mlp_gain", "layer/2/layer_norm", f"layer/2/DenseReluDense/wo/{kernel}"),
        other((), "layer/1/layer_norm"),
        *(rule for names in _PRE_NORM for rule in before(*names, *at(*names))),
        *(
            Rule(f"{norm}/{leaf}", "tied_gain", "d", beside=(f"{tokens}/{table}", *not_gemma))
            for norm, tokens in _BEFORE_OUTPUT
        ),
    )
