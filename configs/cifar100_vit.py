"""CIFAR-100 with the CIFAR-10 recipe.

Paper: Mimetic Initialization of Self-Attention Layers, table 4.
Differs from the paper: as configs/cifar10_vit.py.
"""

import functools

from configs.recipes import small_images_vit

get_config = functools.partial(small_images_vit, "cifar100")
