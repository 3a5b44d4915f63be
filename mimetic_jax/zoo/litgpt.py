"""litgpt."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import embedding_rules, torch_attention, torch_mlp
from mimetic_jax.zoo.norms import adding_one, gains, scales

_BLOCK = r"(?:^|/)h/\d+$"
_FIRST, _SECOND = "norm_1/weight", "norm_2/weight"
_AFTER = ("post_attention_norm/weight", "post_mlp_norm/weight")

LITGPT: tuple[Rule, ...] = (
    *torch_attention(fused="attn/qkv", out="attn/proj", grouped=True, within=_BLOCK),
    *torch_mlp(first="mlp/fc_2", gate="mlp/fc_1", second="mlp/proj", within=_BLOCK),
    *torch_mlp(first="mlp/fc", second="mlp/proj", within=_BLOCK),
    # Gemma 2 and 3 alone have norms on both sides, and add 1 to their gains.
    *gains(_FIRST, _SECOND, _FIRST, *_AFTER, within=_BLOCK, plus_one=True),
    *scales(*_AFTER, _FIRST, within=_BLOCK, plus_one=True),
    *scales(*_AFTER, within=_BLOCK),  # OLMo 2
    Rule(_FIRST, "shared_gain", "d", beside=f"!{_SECOND}", within=_BLOCK),
    *gains(_FIRST, _SECOND, within=_BLOCK),
    *embedding_rules("wte/weight", "lm_head/weight", transposed=True),
    # What tells it from timm's names, whose qkv has another layout.
    *(Rule(name, (), within=_BLOCK) for name in (_FIRST, *_AFTER, "mlp/fc_1/weight")),
)
"""litgpt: Llama, Mistral, Qwen, Gemma, Phi, Pythia, Falcon, OLMo 2 and others in one GPT.

Blocks are transformer.h.N. attn.qkv.weight [(H + 2 G) K, D] holds all heads of query, then those of
key and of value: give `num_heads` and `num_kv_heads` (n_head and n_query_groups of its config). H·K
need not be D. Models of GPT-NeoX's form have an MLP of two layers, mlp.fc and mlp.proj, the others
gated ones, fc_1 and fc_2, or mixtures. norm_1 without a norm_2 is of both
(`shared_attention_norm`). Gemma 1 has Llama's names and adds 1 to its gains: `LITGPT_PLUS_ONE`.
Checkpoints from before the order changed, whose attn.attn or attn.qkv interleave groups, aren't
described: litgpt converts them. Latent attention (DeepSeek) is refused.

Read from: Lightning-AI/litgpt litgpt/model.py (2685705).
"""

LITGPT_PLUS_ONE: tuple[Rule, ...] = adding_one(LITGPT, (_FIRST, _SECOND))
"""`LITGPT` for Gemma 1, which stores w of its gain 1 + w."""
