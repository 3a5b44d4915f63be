"""ViTs on CIFAR-10, any width, depth, heads and patch, after the self-attention paper.

Paper: Mimetic Initialization of Self-Attention Layers, table 1; tables 2 and 5 through `init`,
    table 7 through `patch` and `size`, figure 4 through `scale`, figure 6 through
    --config.data.subset.
Differs from the paper: it states RandAugment, Cutout, batch, learning rate, decay and epochs. What
    it doesn't state is taken from the same authors' CIFAR script (locuslab/convmixer-cifar10) or
    chosen. Theirs: the triangle, decay on all parameters, no smoothing, and cutout in the form of
    random erasing with probability 1/4. Chosen: RandAugment's 2 operations at magnitude 9,
    a crop from 4 pixels of padding (1/8 of `size`), flips, the gradient's norm clipped at 1, 3
    heads, and in table 7 bicubic resizing in training and test. papers/attention.py has what each
    row leaves open.
"""

import functools

from configs.recipes import small_images_vit

get_config = functools.partial(small_images_vit, "cifar10")
