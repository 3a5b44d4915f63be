"""Golden arrays of kentaroy47/vision-transformers-cifar10: its RandAugment and its learning rates.

`make.py` runs them where PyTorch 2.13.0, Pillow 13.0.0 and NumPy are installed, with the repository
at commit 5bb83d3 as the folder vision-transformers-cifar10 of $MIMETIC_ORIGINALS.
"""

import random
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from tests.golden import checkout

Arrays = dict[str, np.ndarray]


def kentaroy_policy() -> Arrays:
    """Each of the 16 operations at magnitudes 5 and 14 on an image [12, 20, 3], uint8.

    Named by magnitude, number in the original's list and sign, such as "14/3-". The image has
    bright and dark halves and noise. Cutouts are of ten seeds of NumPy's generator, at magnitude 5,
    and named by the seed.
    """
    from PIL import Image

    original = checkout.module("vision-transformers-cifar10/randomaug.py")
    rng = np.random.default_rng(0)
    ramp = np.linspace(20, 220, 20)[:, None] + np.linspace(-15, 15, 12)[:, None, None]
    image = np.clip(ramp + rng.normal(scale=25, size=(12, 20, 3)), 0, 255).astype(np.uint8)
    arrays = {"image": image}

    def applied(operation: Any, value: float) -> np.ndarray:
        return np.asarray(operation(Image.fromarray(image), value))

    for magnitude in (5, 14):
        for number, (operation, least, most) in enumerate(original.augment_list()):
            value = float(magnitude) / 30 * float(most - least) + least
            if operation is original.CutoutAbs:
                for seed in range(10) if magnitude == 5 else ():
                    np.random.seed(seed)
                    arrays[f"cutout/{seed}"] = applied(operation, value)
                continue
            # The original has a minus where a uniform number is above 1/2.
            signs = {"+": 0.0, "-": 1.0}
            for sign, uniform in signs.items():
                with mock.patch.object(random, "random", lambda uniform=uniform: uniform):
                    arrays[f"{magnitude}/{number}{sign}"] = applied(operation, value)
            plus, minus = (f"{magnitude}/{number}{sign}" for sign in signs)
            if np.array_equal(arrays[plus], arrays[minus]):
                del arrays[minus]
    return arrays


def kentaroy_rates() -> Arrays:
    """The rate of each epoch as train_cifar10.py steps CosineAnnealingLR, per number of epochs.

    From 1e-4, over 400, 10 and 3 epochs; the scheduler is stepped with epoch − 1 after each epoch.
    """
    import torch

    arrays = {}
    for epochs in (400, 10, 3):
        optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=1e-4)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        rates = []
        for epoch in range(epochs):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its argument is deprecated
                scheduler.step(epoch - 1)
        arrays[f"epochs_{epochs}"] = np.array(rates)
    return arrays


ORIGINALS: dict[str, Callable[[], Arrays]] = {
    make.__name__: make for make in (kentaroy_policy, kentaroy_rates)
}
