"""What the tensors of pretrained vision transformers are in our ViT, by their names in files.

The rules of a table say which tensors attention and MLPs have; these say all of them, so that a
whole network can be taken from a file. Tensors keep the orientation of their file.
"""

from __future__ import annotations

Names = tuple[tuple[str, str | None], ...]

_BLOCK = r"Transformer/encoderblock_(\d+)/"
_VIT_JAX: Names = (
    (r"embedding/(\w+)", r"patch_embed/\1"),
    (r"cls", "cls_token"),
    (r"Transformer/posembed_input/pos_embedding", "pos_embed"),
    # Files from before Linen number the submodules of a block together: 0, 1, 2, 3.
    (_BLOCK + r"LayerNorm_0/(\w+)", r"block_\1/norm1/\2"),
    (_BLOCK + r"LayerNorm_[12]/(\w+)", r"block_\1/norm2/\2"),
    (_BLOCK + r"MultiHeadDotProductAttention_[01]/(\w+/\w+)", r"block_\1/attention/\2"),
    (_BLOCK + r"MlpBlock_[03]/Dense_0/(\w+)", r"block_\1/mlp/fc1/\2"),
    (_BLOCK + r"MlpBlock_[03]/Dense_1/(\w+)", r"block_\1/mlp/fc2/\2"),
    (r"Transformer/encoder_norm/(\w+)", r"norm/\1"),
    (r"head/(\w+)", r"head/\1"),
)
_TIMM: Names = (
    (r"patch_embed\.proj\.(\w+)", r"patch_embed/\1"),
    (r"(cls_token|pos_embed)", r"\1"),
    (r"blocks\.(\d+)\.(norm[12])\.(\w+)", r"block_\1/\2/\3"),
    (r"blocks\.(\d+)\.ls([12])\.gamma", r"block_\1/scale\2"),
    (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", r"block_\1/attention/qkv/\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", r"block_\1/attention/out/\2"),
    (r"blocks\.(\d+)\.mlp\.(fc[12])\.(\w+)", r"block_\1/mlp/\2/\3"),
    (r"(norm|head)\.(\w+)", r"\1/\2"),
)
_VIT = r"(?:vit\.|dinov2\.)?"
_LAYER = _VIT + r"encoder\.layer\.(\d+)\."
_HUGGING_FACE: Names = (
    (_VIT + r"embeddings\.patch_embeddings\.projection\.(\w+)", r"patch_embed/\1"),
    (_VIT + r"embeddings\.cls_token", "cls_token"),
    (_VIT + r"embeddings\.position_embeddings", "pos_embed"),
    (_LAYER + r"layernorm_before\.(\w+)", r"block_\1/norm1/\2"),
    (_LAYER + r"attention\.attention\.(query|key|value)\.(\w+)", r"block_\1/attention/\2/\3"),
    (_LAYER + r"attention\.output\.dense\.(\w+)", r"block_\1/attention/out/\2"),
    (_LAYER + r"layernorm_after\.(\w+)", r"block_\1/norm2/\2"),
    (_LAYER + r"intermediate\.dense\.(\w+)", r"block_\1/mlp/fc1/\2"),
    (_LAYER + r"output\.dense\.(\w+)", r"block_\1/mlp/fc2/\2"),
    (_VIT + r"layernorm\.(\w+)", r"norm/\1"),
    # DINOv2's names of the same.
    (_LAYER + r"(norm[12])\.(\w+)", r"block_\1/\2/\3"),
    (_LAYER + r"mlp\.(fc[12])\.(\w+)", r"block_\1/mlp/\2/\3"),
    (_LAYER + r"layer_scale([12])\.lambda1", r"block_\1/scale\2"),
    (_VIT + r"embeddings\.mask_token", None),
    # The bare encoder's file holds a layer that no classifier uses.
    (_VIT + r"pooler\.dense\.\w+", None),
    (r"classifier\.(\w+)", r"head/\1"),
)

# A file is of the kind whose patch embedding it holds.
KINDS = {names[0][0]: names for names in (_VIT_JAX, _TIMM, _HUGGING_FACE)}
"""Patterns of names with our paths of unrolled layers, by the pattern of the patch embedding.

None is for tensors that our ViT doesn't have. LayerScale is block_L/scale1 and block_L/scale2.

Read from: vit_jax/checkpoint.py; timm, models/vision_transformer.py; transformers,
models/vit/modeling_vit.py and models/dinov2/modeling_dinov2.py.
"""
