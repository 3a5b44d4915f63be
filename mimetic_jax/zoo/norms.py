"""Where well-known models keep the gain of the norm before a layer, and the scale after it."""

import functools

from mimetic_jax.rules import Rule

_SIDES = {"attention": "1", "mlp": "2"}


def _rules(path: str, **options: object) -> tuple[Rule, ...]:
    """The rule of attention and of the MLP, whose names differ in the number 1 or 2."""
    kind = "scale" if options.pop("scale", False) else "gain"
    rule = functools.partial(Rule, layout="d", **options)  # type: ignore[arg-type]
    return tuple(rule(path.replace("N", n), f"{side}_{kind}") for side, n in _SIDES.items())


def _gain(first: str, second: str, **options: object) -> tuple[Rule, ...]:
    rule = functools.partial(Rule, layout="d", **options)  # type: ignore[arg-type]
    leaf = "/(?:scale|weight)"
    return rule(f"{first}{leaf}", "attention_gain"), rule(f"{second}{leaf}", "mlp_gain")


_GEMMA = {"beside": "pre_feedforward_layernorm/weight", "plus_one": True}

NORMS: tuple[Rule, ...] = (
    # A norm after the layer, or maybe after it: torch.nn's encoder and Swin V2.
    *(
        Rule(rf"(?:norm[12]|layernorm_(?:before|after))/weight", (), beside=other)
        for other in (
            "self_attn/in_proj_weight",
            "attn/logit_scale",
            "attention/self/logit_scale",
        )
    ),
    # Gemma 2 and 3 have norms before and after each layer; where they have one in the library of
    # DeepMind, `attn_vec_einsum` is beside it.
    *_gain("input_layernorm", "pre_feedforward_layernorm", **_GEMMA),
    Rule("post_attention_layernorm/weight", "attention_scale", "d", **_GEMMA),  # type: ignore[arg-type]
    Rule("post_feedforward_layernorm/weight", "mlp_scale", "d", **_GEMMA),  # type: ignore[arg-type]
    *_gain("pre_attention_norm", "pre_ffw_norm", plus_one=True),
    # Llama, Mistral, Qwen, Phi, GPT-NeoX; without the first, the second is after attention.
    Rule("input_layernorm/(?:scale|weight)", "attention_gain", "d"),
    Rule("post_attention_layernorm/weight", "mlp_gain", "d", beside="input_layernorm/weight"),
    # timm, DINOv2 and ours
    *_rules("normN/(?:scale|weight)"),
    *_rules("lsN/gamma", scale=True),
    *_rules("layer_scaleN/lambda1", scale=True),
    Rule("layer_scale", "attention_scale", "d", beside="attention/query/kernel"),
    *_gain("layernorm_before", "layernorm_after"),  # Hugging Face's ViT
    *_rules("layer_normN/(?:scale|weight)"),  # CLIP
    *_rules("ln_N/(?:scale|weight)"),  # GPT-2, GPT-Neo, torchvision
    *_gain("attention_norm", "ffn_norm"),  # Llama as published, EasyLM
    # Flax's own numbers: vit_jax, big_vision
    Rule(r"(?<=encoderblock/)LayerNorm_0/scale", "attention_gain", "d"),
    Rule(r"(?<=encoderblock/)LayerNorm_[12]/scale", "mlp_gain", "d"),
    *(
        Rule(rf"LayerNorm_{n}/scale", f"{side}_gain", "d", within=r"encoderblock_\d+$")
        for side, n in (("attention", "0"), ("mlp", "[12]"))
    ),
)
"""Gains and scales by name, whatever the table of the layers.

The part of a path before the name is that of the block: the gain is that of the attention and of
the MLP below it. A stacked leaf has an axis of layers in front. Norms after the residual (BERT,
torch.nn's default, Swin V2) multiply no product. Gemma 1 has Llama's names but adds 1 to its gains:
give rules with `plus_one`.

Read from: timm 1.0.31 models/{vision_transformer,swin_transformer_v2}.py; transformers 5.24
models/{dinov2,vit,clip,gpt2,llama,gemma2,swinv2}/modeling_*.py; torchvision 0.29.2
models/vision_transformer.py; google-research/vision_transformer vit_jax/models_vit.py (143bd26).
"""
