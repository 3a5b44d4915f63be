"""nanochat, and others that come from modded-nanogpt."""

from mimetic_jax.rules.tables import embedding_rules, torch_attention, torch_mlp
from mimetic_jax.zoo.norms import scales

NANOCHAT = (
    *torch_attention(query="attn/c_q", key="attn/c_k", value="attn/c_v", out="attn/(?:c_)?proj"),
    *torch_mlp(
        first="mlp/(?:c_)?fc",
        second="mlp/(?:c_)?proj",
        within=r"(?:^|/)(?:h|blocks)/\d+$",
    ),
    *embedding_rules("wte/weight|tok_emb/weight", "lm_head/weight", transposed=True),
    *scales("attn_scale", "mlp_scale"),
)
"""nanochat, parameter-golf's baseline, and older records of modded-nanogpt, in PyTorch.

Blocks are transformer.h.N or blocks.N; weights are stored (out, in) with flattened heads: give
`num_heads`, and `num_kv_heads` if heads are grouped. Norms have no parameters; queries and keys
are normalized and then multiplied by a constant or by q_gain. parameter-golf multiplies both
outputs by attn_scale and mlp_scale. All start their output projections at zero, which a scheme for
value and out overwrites; value embeddings and gates stay as they are. Newer records of
modded-nanogpt keep the kernels of all layers in banks, which no layout describes, as some of their
rows are padding:

>>> import jax, numpy as np
>>> from mimetic_jax import Rule, rewrite, schemes
>>> L, H, K, D = 2, 4, 8, 32
>>> qk_bank, vo_bank = np.zeros((L * H + 8, 2 * K, D)), np.zeros((2 * L + 4, D, D))
>>> real = {"qk": qk_bank[: L * H].reshape(L, 2 * D, D), "vo": vo_bank[: 2 * L].reshape(L, 2, D, D)}
>>> layers = {"qk": real["qk"], "v": real["vo"][:, 0], "o": real["vo"][:, 1]}
>>> rules = (Rule("qk", ("query", "key"), "l (two h k) d"), Rule("v", "value", "l (g k) d"),
...          Rule("o", "out", "l d (h k)"))
>>> new = rewrite(jax.random.key(0), {"attn": layers}, schemes.Mimetic(), rules=rules, num_heads=H)
>>> qk_bank[: L * H] = new["attn"]["qk"].reshape(L * H, 2 * K, D)
>>> vo_bank[: 2 * L] = np.stack([new["attn"]["v"], new["attn"]["o"]], 1).reshape(2 * L, D, D)

Read from: karpathy/nanochat nanochat/gpt.py (92d63d4); openai/parameter-golf train_gpt.py
(4908dc4); KellerJordan/modded-nanogpt train_gpt.py, train_gpt_medium.py (f411b3d).
"""
