"""Our models, in Flax Linen, and the interface to models of others.

Models don't import schemes: the trainer initializes a model, then rewrites its parameters. The
`Traits` of a model's class hold what else training must know.
"""

from mimetic_jax.models.attention import Attention
from mimetic_jax.models.convmixer import ConvMixer
from mimetic_jax.models.convnext import ConvNeXt
from mimetic_jax.models.gpt import GPT
from mimetic_jax.models.mixer import Mixer
from mimetic_jax.models.model import MODELS, Model, fields_of, find_model, model_fields
from mimetic_jax.models.position import resample
from mimetic_jax.models.swin import Swin
from mimetic_jax.models.traits import Traits
from mimetic_jax.models.vit import VARIANTS, ViT

__all__ = [
    "GPT",
    "MODELS",
    "VARIANTS",
    "Attention",
    "ConvMixer",
    "ConvNeXt",
    "Mixer",
    "Model",
    "Swin",
    "Traits",
    "ViT",
    "fields_of",
    "find_model",
    "model_fields",
    "resample",
]
