"""FLUX, in PyTorch and in JAX."""

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, mlp_rules

_STREAMS = ("img", "txt")


def _double(kernel: str, *, transposed: bool) -> tuple[Rule, ...]:
    return tuple(
        rule
        for name in _STREAMS
        for rule in (
            *attention_rules(
                fused=f"(?<={name}_attn/)qkv",
                out=f"(?<={name}_attn/)proj",
                kernel=kernel,
                flat=True,
                transposed=transposed,
            ),
            *mlp_rules(
                first=f"(?<={name}_mlp/)(?:layers/)?0",
                second=f"(?<={name}_mlp/)(?:layers/)?2",
                kernel=kernel,
                transposed=transposed,
            ),
        )
    )


FLUX: tuple[Rule, ...] = (
    *_double("weight", transposed=True),
    *_double("kernel", transposed=False),
    Rule(r"single_blocks/(?:layers/)?\d+/linear[12]/.*", ()),
)
"""FLUX.1 of Black Forest Labs in PyTorch, and jflux, its port to NNX.

Blocks are double_blocks.N.img_attn and txt_attn (double_blocks/layers/N in jflux): both streams
attend to all tokens, and each product W_Q·W_Kᵀ is that of a stream with itself. qkv holds query,
key and value one after the other, [3 D, D] in PyTorch and [D, 3 D] in jflux: give `num_heads`.
Queries and keys are normalized before their product; norms of the stream have no parameters, as
adaLN modulates them. The MLPs are img_mlp and txt_mlp. single_blocks keep their initialization:
linear1 holds query, key, value and the MLP's first layer, linear2 attention's output and the MLP's
second, which no layout divides; cut them before, give the parts' names in rules, and join them
after.

Read from: black-forest-labs/flux src/flux/modules/layers.py, src/flux/math.py (802fb47);
ml-gde/jflux jflux/modules/layers.py (55b88a3).
"""
