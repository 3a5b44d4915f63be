"""GPT-2 and nanoGPT, whose kernels are stored in either order: their shapes tell which."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.zoo.family import Family
from mimetic_jax.zoo.storage import LINEN, TORCH, Storage, only_beside


def _gpt2(storage: Storage, *, transposed: bool, absent: str = "") -> tuple[Rule, ...]:
    ends = ("wte", storage.table)
    return (
        *only_beside(
            storage.attention(
                {"fused": "attn/c_attn", "out": "attn/c_proj"}, transposed=transposed
            ),
            f"attn/c_attn/{storage.kernel}",  # of another storage biases have these names, too
            absent,
        ),
        Rule("(?:crossattention|ln_cross_attn)/.*", ()),
        *storage.mlp("mlp/c_fc", "mlp/c_proj", transposed=transposed),
        *storage.tokens("wte", "lm_head"),
        Rule(f"wpe/{storage.table}", "position", "n d"),
        storage.gain("tied_gain", "ln_f", beside="/".join(ends)),
        *storage.norms("gain", "ln_1", "ln_2"),
    )


# GPT-1 has the same names after the sum.
_HARMLESS, _GPT_1 = r"ln_[12]/bias|(?:^|/)attn/(?:masked_)?bias$|rngs", r"tokens_embed/"

GPT2 = Family(
    (*_gpt2(TORCH, transposed=False), *_gpt2(LINEN, transposed=True)),
    harmless=_HARMLESS,
    absent=_GPT_1,
)
"""GPT-2 of Hugging Face, in PyTorch and in Flax, and of EasyDeL.

Blocks are transformer/h/N (h/N in the bare model); c_attn holds query, key and value one after the
other. PyTorch's Conv1D stores weights (in, out), attn.c_attn.weight is [D, 3 D]; FlaxConv1D stores
its kernel (out, in), [3 D, D]. Give `num_heads`. Positions are wpe [N, D], for text:
`SinCos(axes=1)`. Cross-attention keeps its initialization.

Read from: transformers 5.24 models/gpt2/modeling_gpt2.py and pytorch_utils.py, and 4.57.6
modeling_flax_gpt2.py; erfanzar/EasyDeL easydel/modules/gpt2/modeling_gpt2.py (090a03b).
"""

NANOGPT = Family(
    # With biases its names are GPTBigCode's, too, which holds one head after the other.
    (*_gpt2(TORCH, transposed=True, absent="!attn/c_attn/bias"), *_gpt2(LINEN, transposed=False)),
    harmless=_HARMLESS,
    absent=_GPT_1,
)
"""nanoGPT, in PyTorch without biases of attention, and its ports to Flax.

The names are those of `GPT2`, which stores kernels the other way round: attn.c_attn.weight of an
nn.Linear is [3 D, D], c_attn/kernel of an nn.Dense [D, 3 D]. Give `num_heads`. Positions are wpe
[N, D], for text: `SinCos(axes=1)`.

Read from: karpathy/nanoGPT model.py (0011cd4); jenkspt/gpt-jax model.py (031eb00).
"""
