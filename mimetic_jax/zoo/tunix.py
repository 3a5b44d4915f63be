"""tunix."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, layer_names, mlp_rules
from mimetic_jax.zoo.norms import gains

TUNIX: tuple[Rule, ...] = (
    *attention_rules(**layer_names("attn/{}_proj", "qkvo"), kernel="w"),
    Rule("attn/q_bias", "query_bias", "(h k)"),
    Rule("attn/k_bias", "key_bias", "(g k)"),
    Rule("attn/v_bias", "value_bias", "(g k)"),
    *mlp_rules(first="mlp/up_proj", gate="mlp/gate_proj", second="mlp/down_proj"),
    *embedding_rules("embedder/input_embedding", "lm_head/w"),
    *gains("input_layernorm/w", "post_attention_layernorm/w"),
)
"""tunix's Llama 3, Qwen 2 and Qwen 3. Its Gemma 1 to 3 are `GEMMA`.

Blocks are layers/N, kernels [D, H, K], [D, G, K] and out [H, K, D]: `num_heads` isn't needed, but
for Qwen 2, whose biases have their heads flattened. H·K need not be D. Qwen 3 normalizes queries
and keys before their product; positions are rotary; MLPs are gated or mixtures of experts.

Read from: google/tunix tunix/models/{llama3,qwen2,qwen3,gemma,gemma3}/model.py (c7d8950).
"""
