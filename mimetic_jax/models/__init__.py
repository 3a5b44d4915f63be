"""Our models, in Flax Linen. They know no scheme: the trainer initializes, then rewrites."""

from mimetic_jax.models import pretrained
from mimetic_jax.models.attention import Attention
from mimetic_jax.models.gpt import GPT
from mimetic_jax.models.position import resample
from mimetic_jax.models.vit import VARIANTS, ViT

__all__ = ["GPT", "VARIANTS", "Attention", "ViT", "pretrained", "resample"]
