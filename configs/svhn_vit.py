"""SVHN with the CIFAR-10 recipe.

Paper: Mimetic Initialization of Self-Attention Layers, table 4.
Differs from the paper: as configs/cifar10_vit.py; no flips, since a mirrored digit is no digit (the
    paper says "the same settings" and doesn't say whether these flip); the 73,257 train images
    alone, which the paper doesn't say either.
"""

import functools

from configs.recipes import small_images_vit

get_config = functools.partial(small_images_vit, "svhn", False)
