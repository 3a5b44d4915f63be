"""GPT-2's names, whose kernels are stored in either order; the shapes of attention tell which."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, mlp_rules
from mimetic_jax.zoo.hugging_face import EXCLUDED
from mimetic_jax.zoo.norms import gains


def _gpt2(kernel: str, table: str, *, transposed: bool) -> tuple[Rule, ...]:
    leaf = "weight" if kernel == "weight" else "scale"
    return (
        *attention_rules(
            fused="attn/c_attn",
            out="attn/c_proj",
            flat=True,
            kernel=kernel,
            transposed=transposed,
            exclude=EXCLUDED,
        ),
        Rule("crossattention/.*", ()),
        *mlp_rules(first="mlp/c_fc", second="mlp/c_proj", kernel=kernel, transposed=transposed),
        *embedding_rules(
            f"wte/{table}", f"lm_head/{kernel}", transposed=kernel == "weight", exclude=EXCLUDED
        ),
        Rule(f"wpe/{table}", "position", "n d"),
        Rule(f"ln_f/{leaf}", "tied_gain", "d", beside=f"wte/{table}"),
        # GPT-1 has the same names after the sum.
        Rule(f"ln_[12]/{leaf}", "post_norm", "d", beside=f"../../tokens_embed/{table}"),
        *gains(f"ln_1/{leaf}", f"ln_2/{leaf}"),
        Rule(f"ln_cross_attn/{leaf}", ()),
    )


HUGGING_FACE_GPT2: tuple[Rule, ...] = _gpt2("kernel", "embedding", transposed=True)
"""GPT-2 of Hugging Face's Flax models and of EasyDeL.

Blocks are transformer/h/N (h/N in the bare model). FlaxConv1D stores its kernel as (out, in)
and transposes it in use, the opposite of both nn.Dense and PyTorch's Conv1D; c_attn holds
query, key and value one after the other: [3 D, D]. Give `num_heads`. Positions are wpe/embedding
[N, D], for text: `SinCos(axes=1)`. Cross-attention keeps its initialization.

Read from: huggingface/transformers src/transformers/models/gpt2/modeling_flax_gpt2.py (21a7f4b);
erfanzar/EasyDeL easydel/modules/gpt2/modeling_gpt2.py (090a03b).
"""

NANOGPT: tuple[Rule, ...] = _gpt2("kernel", "embedding", transposed=False)
"""Ports of nanoGPT to Flax, whose layers are nn.Dense: c_attn/kernel is [D, 3 D].

The names are those of `HUGGING_FACE_GPT2`, which stores kernels the other way round; the shapes of
attention tell them apart. Give `num_heads`. Positions are wpe/embedding [N, D], for text:
`SinCos(axes=1)`.

Read from: jenkspt/gpt-jax model.py (031eb00).
"""

PYTORCH_GPT2: tuple[Rule, ...] = _gpt2("weight", "weight", transposed=False)
"""GPT-2 in PyTorch, Hugging Face's.

Its Conv1D stores weights (in, out), unlike all other layers: attn.c_attn.weight is [D, 3 D]. Give
`num_heads`. Positions are wpe.weight [N, D], for text: `SinCos(axes=1)`. Cross-attention keeps its
initialization.

Read from: transformers 5.24 models/gpt2/modeling_gpt2.py and pytorch_utils.py.
"""

PYTORCH_NANOGPT: tuple[Rule, ...] = _gpt2("weight", "weight", transposed=True)
"""nanoGPT in PyTorch, whose layers are nn.Linear: attn.c_attn.weight is [3 D, D].

The names are those of `PYTORCH_GPT2`, which stores weights the other way round; the shapes of
attention tell them apart. Give `num_heads`. Positions are wpe.weight [N, D], for text:
`SinCos(axes=1)`. Hugging Face's GPTBigCode has the names of a nanoGPT with biases, and its c_attn
holds one head after the other: the error prints both calls, unless config.json tells.

Read from: karpathy/nanoGPT model.py (0011cd4).
"""
