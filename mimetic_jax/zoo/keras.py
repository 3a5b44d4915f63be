"""Keras 3 with the JAX backend."""

from mimetic_jax.rules.tables import POOLING, attention_rules

KERAS = (*POOLING, *attention_rules(out="attention_output"))
"""Models with `keras.layers.MultiHeadAttention` or `keras.layers.GroupQueryAttention`.

The tree is the dictionary of variables by path, {"…/multi_head_attention/query/kernel": array}:

    params = {variable.path: variable.value for variable in model.trainable_variables}
    params = rewrite(key, params, scheme, rules=KERAS)
    for variable in model.trainable_variables:
        variable.assign(params[variable.path])

Kernels are [D, H, K], or [D, G, K] of key and value, and attention_output [H, K, D]: `num_heads`
isn't needed. Cross-attention is the same class: the layer's name must identify it. The two Dense
layers of an MLP have the names of any others and keep their initialization.

Read from: keras 3.15.1, keras/src/layers/attention/{multi_head,grouped_query}_attention.py.
"""
