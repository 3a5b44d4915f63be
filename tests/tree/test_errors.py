"""What can't be written is refused in one line, by `plan` as by `rewrite`."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest

from mimetic_jax import InputError, Rule, attention_rules, plan, rewrite
from mimetic_jax.schemes import Impulse, Mimetic, SinCos, TFixup

D, H, K = 16, 2, 8
STOCK = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}
DENSE = dict.fromkeys(STOCK, (D, D))
FLAT = {"rules": attention_rules(flat=True)}
FUSED = {"rules": attention_rules(fused="qkv", out="proj", flat=True)}
GROUPED = {"rules": attention_rules(fused="qkv", grouped=True)}
TWO, FOUR = {"num_heads": 2}, {"num_heads": 4, "num_kv_heads": 1}
NARROW = DENSE | dict.fromkeys(("key", "value"), (D, D // 2))
FALLING = Mimetic(alpha_qk=lambda depth: 0.7 - 1.4 * depth)
BOTH = [Rule("(q|p)/kernel", "query", "d h k")]
QUERY_KEY = Mimetic(alpha_vo=None, beta_vo=None)
# Four heads of query and one of key and value have 48 columns, as three times four of 4.
FEWER = {"qkv": (32, 48), "proj": (32, 32)}
GROUPS = {"qkv": (D, 8, K), "out": (4, K, D)}
BY_LAYER = r"grouped=…\), num_heads=…, num_kv_heads=…, where .* grouped=True if qkv"
# Four Dense layers under nn.scan.
SCANNED = dict.fromkeys(STOCK, (3, D, D))
ODD_GROUPS = {"query": (24, 6, 4), "key": (24, 4, 4), "value": (24, 4, 4), "out": (6, 4, 24)}
BOTH_LAYERS = {f"layer_{layer}/{role}": STOCK[role] for layer in range(2) for role in STOCK}
# torch.nn's cross-attention, and integers.
OTHER_WIDTHS = {f"mha.{name}_proj_weight": (D, 12) for name in "kv"}
OTHER_WIDTHS |= {"mha.q_proj_weight": (D, D), "mha.in_proj_bias": (3 * D,)}
OTHER_WIDTHS |= {"mha.out_proj.weight": (D, D), "mha.out_proj.bias": (D,)}
PACKED = {f"self_attn.{name}_proj.qweight": (D, D // 4) for name in "qkvo"}
PACKED |= {f"self_attn.{name}_proj.scales": (D,) for name in "qkvo"}
MOMENTS = optax.TraceState(trace={"key": {"kernel": jnp.ones((4, 2, 2))}})


@pytest.mark.parametrize(
    ("kernels", "scheme", "options", "words"),
    [
        ({"mlp": (2, 2)}, Mimetic(), {}, "Mimetic matches nothing among the paths mlp/kernel"),
        ({}, Mimetic(), {}, "Mimetic matches nothing: the tree has no leaves"),
        ({f"cross_attention/{n}": s for n, s in STOCK.items()}, Mimetic(), {}, "matches nothing"),
        (nn.Dense(3), Mimetic(), {}, r"^Dense\(.* is not a tree of parameters"),
        ([{}, [MOMENTS]], Mimetic(), {}, "1/0/trace/.* belongs to optax's TraceState: pass the pa"),
        ({"attn/qkv": (4, 12)}, Mimetic(), {}, "no family of models knows attn/qkv/kernel"),
        ({"query": (4, 4), "key": (4, 4)}, Mimetic(), {}, "flattened: pass num_heads"),
        ({"a/query": (4, 2, 2), "a/out": (2, 2, 4)}, Mimetic(), {}, "a: query and key are drawn"),
        (STOCK | {"key": (12, H, K)}, Mimetic(), {}, "must have the same width and head width"),
        (dict.fromkeys(STOCK, (0, 2, 12)), Mimetic(), {}, "empty"),
        (STOCK, Mimetic(), {"num_head": H}, "unknown option 'num_head'.* did you mean 'num_heads'"),
        (DENSE, Mimetic(), FLAT, "pass num_heads"),
        (DENSE, Mimetic(), FLAT | {"num_heads": 3}, "num_heads 3 does not divide axis 1 of"),
        (DENSE, Mimetic(), FLAT | TWO | {"num_kv_heads": 3}, "kv_heads 3 does not divide axis 1"),
        (DENSE, Mimetic(), FLAT | {"num_heads": True}, "num_heads must be an integer.*got True"),
        (DENSE, Mimetic(), FLAT | TWO | {"num_kv_heads": 0}, "kv_heads must be an integer.*got 0"),
        (NARROW, TFixup(), FLAT | {"num_heads": 4}, "heads of width 4, key/kernel of width 2"),
        (ODD_GROUPS, Mimetic(), {}, "4.*6|6.*4"),
        (SCANNED, Mimetic(), {}, "stacked=True, flat=True"),
        (SCANNED, QUERY_KEY, {}, "stacked=True, flat=True"),
        (FEWER, Mimetic(), FUSED | {"num_heads": 4}, "grouped=True"),
        (FEWER, QUERY_KEY, FUSED | {"num_heads": 4, "num_kv_heads": 1}, "grouped=True"),
        ({"attn/qkv": (32, 48), "attn/proj": (32, 32)}, Mimetic(), {}, BY_LAYER),
        (GROUPS, Mimetic(), GROUPED, "along one axis: pass num_heads and num_kv_heads"),
        (GROUPS, Mimetic(), GROUPED | FOUR, "num_heads 4 and num_kv_heads 1 do not fit axis 1"),
        (BOTH_LAYERS, Mimetic(beta_qk=(0.1, 0.2, 0.3)), {}, "beta_qk has 3 values for 2 layers"),
        (BOTH_LAYERS, FALLING, {}, "layer_1: Mimetic.alpha_qk must be a number .*; got -0.7"),
        (STOCK, Impulse(), {}, "one position embedding of image"),
        # Text has no grid.
        (
            STOCK | {"pos_embed": (1, 16, D), "embedding": (9, D)},
            Impulse(),
            {},
            "one position embedding of image",
        ),
        (STOCK | {"pos_embed": (1, 15, D)}, SinCos(), {}, "Cannot tell the grid of 15 positions"),
        (
            OTHER_WIDTHS,
            Mimetic(),
            {"num_heads": H},
            "nothing among the paths mha.in_proj_bias",
        ),
        (PACKED, Mimetic(), {"num_heads": H}, "k_proj.scales seems to multiply a kernel"),
        ({"a/q": (4, 2, 2), "a/p": (4, 2, 2)}, Mimetic(), {"rules": BOTH}, "both claim role query"),
    ],
)
def test_refused(kernels, scheme, options, words):
    tree = kernels
    if isinstance(kernels, dict):
        whole = ("pos_embed", "embedding")
        tree = {
            name if name in whole or "." in name else f"{name}/kernel": jnp.ones(shape)
            for name, shape in kernels.items()
        }
    with pytest.raises(InputError, match=words) as planned:
        plan(tree, scheme, **options)
    with pytest.raises(InputError) as written:
        rewrite(jax.random.key(0), tree, scheme, **options)
    assert str(planned.value) == str(written.value)
    assert "\n" not in str(written.value)


@pytest.mark.parametrize(
    ("role", "layout", "words"),
    [
        ("quary", "d h k", "unknown role 'quary'"),
        ("query", "d k", "layout 'd k'"),
        (("query", "key"), "d (h+2g) k", "has 3 parts, but the role is"),
        (("query", "key", "value"), "d (h+2g)", r"must have the axes 'd \(h\+2g\) k'"),
        (("mlp_in", "mlp_out"), "two d f", "mlp_in has no heads, so it can't share a leaf"),
    ],
)
def test_rules_that_describe_no_leaf(role, layout, words):
    with pytest.raises(InputError, match=words):
        Rule("qkv/kernel", role, layout)
