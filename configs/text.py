"""A language model on a text of your own: a file, or a folder of .txt files.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it).
Command: python main.py --config=configs/text.py --config.data.dir=FILE_OR_FOLDER
Chosen: embedding and optimizer of configs/python_docs.py, which were chosen by the default arm
    there, on another text: search the learning rate on yours, by the default arm alone.
"""

from ml_collections import ConfigDict

from configs.default import arguments
from configs.recipes import short_text


def get_config(text: str = "") -> ConfigDict:
    """Arguments: level (char, word), width, depth, heads, length, steps, init.

    A folder with train.txt, valid.txt and test.txt is read as it is split; any other text is split
    at line ends, 90 %, 5 % and 5 %, at most 100,000 characters to test on. `length` is the number
    of tokens of a window. Arms are default, norm_matched and mimetic; `init` takes others of
    arms.language.
    """
    sizes = {"width": 128, "depth": 4, "heads": 4, "length": 128, "steps": 1000}
    args = arguments(text, {"level": ("char", "word")}, level="char", **sizes, init="all")
    config = short_text(args)
    config.name = "text"
    config.data.name = f"text_{args.level}"
    config.data.length = config.data.valid = args.length
    config.batch = 16

    config.eval.every = max(200, args.steps // 10)  # a test may take as long as 30 steps
    config.eval.batch = 32
    config.checkpoint_every = 200
    return config
