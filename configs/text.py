"""A language model on a text of your own: a file, or a folder of .txt files.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it).
Command: python main.py --config=configs/text.py --config.data.dir=FILE_OR_FOLDER
Chosen: embedding and optimizer of configs/python_docs.py, which were chosen by the default arm
    there, on another text: search the learning rate on yours, by the default arm alone.
"""

from ml_collections import ConfigDict

from configs.arms import ALL, Names
from configs.default import check_choice
from configs.recipes import short_text


def get_config(
    level: str = "char",
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    length: int = 128,
    steps: int = 1000,
    init: Names = ALL,
) -> ConfigDict:
    """`level` is char or word, `length` the number of tokens of a window.

    A folder with train.txt, valid.txt and test.txt is read as it is split; any other text is split
    at line ends, 90 %, 5 % and 5 %, at most 100,000 characters to test on. Arms are default,
    norm_matched and mimetic; `init` takes others of arms.language.
    """
    check_choice("level", level, ("char", "word"))
    config = short_text(width, depth, heads, steps, init)
    config.update(name="text", batch=16, checkpoint_every=200)
    config.data.update(name=f"text_{level}", length=length, valid=length)
    # A test may take as long as 30 steps.
    config.eval.update(every=max(200, steps // 10), batch=32)
    return config
