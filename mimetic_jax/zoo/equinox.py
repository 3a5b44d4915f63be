"""Equinox."""

from mimetic_jax.rules.tables import layer_names, torch_attention

_NAMES = layer_names("{}_proj", ("query", "key", "value", "output"))

EQUINOX = torch_attention(**_NAMES)
"""Modules with `equinox.nn.MultiheadAttention`.

Leaves are named by the attributes of the modules, blocks by the attribute that holds the attention.
Weights are stored (out, in), query_proj/weight [H K, D] and output_proj/weight [D, H K], with
flattened heads: give `num_heads`. Biases exist with `use_query_bias` and its likes. A module is a
tree, and the one that comes back is a module again, whose functions and flags are the same:

    model = rewrite(key, model, scheme, rules=EQUINOX, num_heads=4)

Cross-attention is the same class: the attribute's name must identify it. The two layers of an
`equinox.nn.MLP` have the names of any others and keep their initialization.

Read from: equinox 0.13.8, equinox/nn/{_attention,_linear}.py.
"""

EQUINOX_STACKED = torch_attention(**_NAMES, stacked=True)
"""`EQUINOX` in layers that `equinox.filter_vmap` stacks along axis 0, to be scanned over."""
