"""llama.cpp."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import layer_names, torch_attention, torch_mlp
from mimetic_jax.zoo.norms import gains, gated, scales

_BLOCK = r"(?:^|/)blk/\d+$"
_FIRST, _SECOND = "attn_norm/weight", "ffn_norm/weight"
_AFTER = ("post_attention_norm/weight", "post_ffw_norm/weight")
_KERNELS = ("ffn_up/weight", "ffn_gate/weight", "ffn_down/weight")

GGUF: tuple[Rule, ...] = (
    Rule("attn_qkv/weight", (), within=_BLOCK, beside="ssm_out/weight"),  # gated delta nets
    *torch_attention(**layer_names("attn_{}", ("q", "k", "v", "output")), within=_BLOCK),
    *torch_attention(fused="attn_qkv", out="attn_output", grouped=True, within=_BLOCK),
    *gated(*_KERNELS, transposed=True, within=_BLOCK, beside=_KERNELS[1]),
    *torch_mlp(first="ffn_up", second="ffn_down", within=_BLOCK),
    *scales(*_AFTER, *_AFTER, within=_BLOCK),  # Gemma 2 and 3, OLMo 2, GLM 4
    *gains(_FIRST, _SECOND, _SECOND, within=_BLOCK),
    # One norm for attention and MLP: Phi, Command R, Falcon 7B.
    Rule(
        _FIRST, "shared_gain", "d", within=_BLOCK, beside=(f"!{_AFTER[0]}", "!attn_norm_2/weight")
    ),
)
"""llama.cpp's GGUF files, which `mimetic check` and `mimetic fit` read: Llama, Mistral, Qwen,
Gemma, Phi, OLMo 2, Falcon, GPT-2 and others by the same names.

Blocks are blk.N. Weights are (out, in), attn_qkv.weight [(H + 2 G) K, D] has all heads of query,
then those of key and of value; numbers of heads are in the file. Its converter adds Gemma's 1 to
the gains, and stores the columns of Llama's heads as neighboring rotary pairs. Latent attention
(attn_kv_b), mixtures of experts (ffn_up_exps), gate and up in one array (Phi-3) and
encoder-decoders have no rules.

Read from: gguf 0.19.0 gguf/constants.py and tensor_mapping.py; llama.cpp convert_hf_to_gguf.py and
src/llama-model.cpp.
"""
