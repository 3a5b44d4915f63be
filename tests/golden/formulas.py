"""Independent truth: the papers' formulas here, in float64 NumPy without mimetic_jax.

The arrays in this folder are of other programs, on an x86 CPU. The functions that ran them, by
the names of the files, are in tests/golden/*.py of commit 59b65fb3, with what they need:

- torch_adamw, resample, hugging_face_vit: PyTorch 2.13.0, transformers 5.23.0.
- vit: our ViT with Flax's own attention layer in place of ours.
- kentaroy_policy, kentaroy_rates, mixer, convmixer: kentaroy47/vision-transformers-cifar10 at
  5bb83d3, Pillow 13.0.0. convnext: timm 1.0.31.
- windows: the same repository, and microsoft/Swin-Transformer at f82860b.
- released: osiriszjq/structured_initialization at 2623dcc. One ViT layer of D = 20, H = 4 per
  family, in float64: "before", and every parameter that the family changed, in PyTorch's layouts;
  "impulse3_2_1" scales positions by 3 and query and key to norm 2, "impulse" by 18 and 7. The
  noise of its logits is "trunc_normal", the uniform one np.random.RandomState(0).uniform on
  ±√(3/D), first [H, D, D] for query and key, then [D, D] for value and projection.
"""

import pathlib
from collections.abc import Callable

import numpy as np
import scipy.linalg

Arrays = dict[str, np.ndarray]
FOLDER = pathlib.Path(__file__).parent


def schedules() -> Arrays:
    """Learning rates of the recipes, and the rules that lower them on a plateau.

    - triangle: 0, the peak at 2/5 of the epochs, 1/20 of it at 4/5, 0; per half epoch (ConvMixer).
    - deit, small: timm's cosine over 300 epochs, the first of them replaced by a linear warm-up
      from 1e-6; DeiT has 10 epochs of cool-down more. CosineLRScheduler of timm 1.0.31 differs by
      at most 3e-19.
    - wsel: weight selection, per step: 6 epochs of 4 steps, 2 of them warm-up up to the peak.
    - plateau: the rate before the first and after each loss of `plateau_val`, from 4 (Bai et al.):
      after five epochs, ½ if a loss is at least the largest of the five before (word), ⅒ if it is
      above the largest of the three before (char).
    """
    losses = [6, 5.5, 5.2, 5, 4.9, 4.85, 4.9, 4.86, 4.95, 4.84, 4.95, 4.96, 4.8, 4.97]
    word, char = [4.0], [4.0]
    for epoch, loss in enumerate(losses):
        word.append(
            word[-1] / 2 if epoch >= 5 and loss >= max(losses[epoch - 5 : epoch]) else word[-1]
        )
        char.append(
            char[-1] / 10 if epoch >= 5 and loss > max(losses[epoch - 3 : epoch]) else char[-1]
        )
    return {
        "triangle_100ep_lr3e_3": _triangle(100, 3e-3),
        "triangle_150ep_lr1e_2": _triangle(150, 1e-2),
        "deit_epoch_lr": np.append(_timm_cosine(1e-3, 5, 1e-5), np.full(10, 1e-5)),
        "small_epoch_lr": _timm_cosine(2e-3, 50, 1e-6),
        "wsel_iter_lr_6ep_4per_warm2": np.append(
            np.linspace(0, 2e-3, 8), _cosine(2e-3, 1e-6, np.arange(16) / 16)
        ),
        "plateau_val": np.array(losses),
        "plateau_word_lr": np.array(word),
        "plateau_char_lr": np.array(char),
    }


def _triangle(epochs: int, peak: float) -> np.ndarray:
    corners = [0, epochs * 2 // 5, epochs * 4 // 5, epochs]
    return np.interp(np.arange(2 * epochs + 1) / 2, corners, [0, peak, peak / 20, 0])


def _timm_cosine(peak: float, warmup: int, final: float) -> np.ndarray:
    rates = _cosine(peak, final, np.arange(300) / 300)
    rates[:warmup] = 1e-6 + np.arange(warmup) * (peak - 1e-6) / warmup
    return rates


def _cosine(peak: float, final: float, fraction: np.ndarray) -> np.ndarray:
    return final + 0.5 * (peak - final) * (1 + np.cos(np.pi * fraction))


def sincos() -> Arrays:
    """Sinusoidal position tables of temperature 10000, named by program, grid and width D.

    2-D: ω_j = 10000^(−j / (D/4 − 1)), sin and cos of x ω, then of y ω (SimpleViT). 1-D:
    ω_j = 10000^(−2j / D), sine and cosine interleaved (Vaswani et al.).
    """
    y, x = np.divmod(np.arange(16), 4)
    angles = np.outer(np.arange(16), 1e4 ** (-np.arange(8) / 8))
    wide_y, wide_x = np.divmod(np.arange(15), 5)
    return {
        "simplevit_4x4_d16": np.hstack(_waves(x, y, 1e4 ** (-np.arange(4) / 3))),
        "vaswani1d_interleaved_n16_d16": np.stack(
            [np.sin(angles), np.cos(angles)], axis=-1
        ).reshape(16, 16),
        "simplevit_3x5_d8": np.hstack(_waves(wide_x, wide_y, 1e4 ** -np.arange(2.0))),
    }


def _waves(x: np.ndarray, y: np.ndarray, omega: np.ndarray) -> list[np.ndarray]:
    return [wave(np.outer(axis, omega)) for axis in (x, y) for wave in (np.sin, np.cos)]


def zero_init() -> Arrays:
    """ZerO's matrices in PyTorch's orientation (out, in).

    Square and wide ones are partial identities; tall ones are the corner of the Hadamard matrix of
    size 2^c ≥ out, divided by 2^(c/2).
    """
    hadamard = scipy.linalg.hadamard(8) / 8**0.5
    return {
        "square_6": np.eye(6),
        "wide_4x6": np.eye(4, 6),
        "tall_6x4": hadamard[:6, :4],
        "tall_8x3": hadamard[:, :3],
    }


FORMULAS: dict[str, Callable[[], Arrays]] = {
    make.__name__: make for make in (schedules, sincos, zero_init)
}
