"""bonsai, the NNX models of jax-ml."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, layer_names, mlp_rules
from mimetic_jax.zoo.norms import hugging_face_norms

BONSAI: tuple[Rule, ...] = (
    *attention_rules(**layer_names("attn/{}_proj", "qkvo")),
    *attention_rules(within=r"layers/\d+/(attention|self_attn)$"),
    *mlp_rules(first="linear1", second="linear2", within=r"layers/\d+$"),
    *mlp_rules(within=r"layers/\d+$"),
    *mlp_rules(first="mlp/up_proj", gate="mlp/gate_proj", second="mlp/down_proj"),
    *hugging_face_norms("scale", "kernel"),
    *embedding_rules("(?:embed_tokens|embedder)/embedding", "lm_head/kernel"),
    Rule("pos_embeddings/pos_embeddings", "position", "1 n d"),
    Rule("(?<=decoder/)embed_positions/embedding", "position", "n d"),
)
"""bonsai's Qwen3, ViT and Whisper.

Kernels have their heads apart, [D, H, K], [D, G, K] and out [H, K, D]: `num_heads` isn't needed.
Qwen3's blocks are layers/N, H·K need not be D; queries and keys are normalized before their
product, positions are rotary, the MLP is gated. ViT and Whisper have stock attention. Whisper's
cross-attention keeps its initialization; its encoder's positions are sinusoids.

The others have Hugging Face's names and are `HUGGING_FACE`: Gemma 3, DINOv3, Qwen3-VL, LLaDA, UMT5
and V-JEPA 2.

Read from: jax-ml/bonsai bonsai/models/{qwen3,vit,whisper}/modeling.py (3628425).
"""
