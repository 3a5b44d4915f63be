"""Tiny ImageNet, 64×64 pixels in patches of 4, with the CIFAR-10 recipe.

Paper: Mimetic Initialization of Self-Attention Layers, table 4.
Differs from the paper: as configs/cifar10_vit.py; the padding before the crop is 8 pixels, the
    same share of the image. Accuracies are of the 10,000 validation images.
"""

import functools

from configs.recipes import small_images_vit

get_config = functools.partial(small_images_vit, "tiny_imagenet", patch=4)
