"""Our models, in Flax Linen. They know no scheme: the trainer initialises, then rewrites."""

from mimetic_jax.models.vit import ViT

__all__ = ["ViT"]
