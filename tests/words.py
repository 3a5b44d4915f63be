"""Small texts in folders, for tests that read them from a disk."""

import pathlib

import numpy as np

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "an", "old", "dog", "run", "by"]


def penn_treebank(root: pathlib.Path) -> pathlib.Path:
    """Files in the form of the Penn Treebank, of sentences with some order in them."""
    random = np.random.default_rng(0)
    for split, lines in (("train", 200), ("valid", 23), ("test", 31)):
        starts = random.integers(0, len(WORDS), lines)
        sentences = [" ".join(WORDS[(s + i) % len(WORDS)] for i in range(6)) for s in starts]
        (root / f"ptb.{split}.txt").write_text("".join(f" {line} \n" for line in sentences))
    return root


def numbered(path: pathlib.Path, lines: int) -> str:
    """The name of a text file whose lines differ."""
    path.write_text("".join(f"line {number} of a text\n" for number in range(lines)))
    return str(path)
