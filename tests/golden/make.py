"""Independent truth: the papers' formulas here, and arrays that other programs computed.

The formulas are in float64 NumPy and without mimetic_jax. The other modules of this folder compute
the arrays that are stored in it, and say what must be installed to run them:

    python -m tests.golden.make [--write] NAME ...

prints the largest difference per file NAME.npz; `--write` stores the new arrays.
"""

import argparse
import pathlib
from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.stats

from tests.golden import convolutions, mamba, originals, released, windows
from tests.golden.originals import Arrays

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

ORIGINALS: dict[str, Callable[[], Arrays]] = {
    make.__name__: make
    for make in (
        *(originals.torch_adamw, originals.resample, originals.hugging_face_vit, originals.vit),
        *(originals.gpsa, originals.kentaroy_policy, originals.kentaroy_rates),
        *(convolutions.mixer, convolutions.convmixer, convolutions.convnext),
        *(mamba.mamba, released.released, windows.windows),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="+", choices=ORIGINALS)
    parser.add_argument("--write", action="store_true", help="store what was computed")
    arguments = parser.parse_args()
    for name in arguments.name:
        path, arrays = FOLDER / f"{name}.npz", ORIGINALS[name]()
        if path.exists():
            with np.load(path) as stored:
                largest = max(np.abs(arrays[key] - stored[key]).max() for key in stored)
            print(f"{name}: largest difference {largest:.1g}")
        if arguments.write:
            np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main()
