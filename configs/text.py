"""A language model on a text of your own: a file, or a folder of text or source code.

Paper: Mimetic Initialization of Self-Attention Layers (no row of it).
Command: python main.py --config=configs/text.py --config.data.dir=FILE_OR_FOLDER
Chosen: embedding and optimizer of configs/python_docs.py, which were chosen by the default arm
    there, on another text; half of its rate for the models of other levels, which turn positions:
    on yours, --rates=2e-3,4e-3,8e-3 lets each arm choose its own.
"""

from ml_collections import ConfigDict

from configs import arms
from configs.default import check_choice
from configs.recipes import MODERN, short_text
from mimetic_jax.data.text.text_files import LEVELS


def get_config(
    level: str = "char",
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    length: int = 128,
    steps: int = 1000,
    vocab: int = 0,
    init: arms.Names = arms.ALL,
) -> ConfigDict:
    """`level` is char, word, bpe (byte pairs, `vocab` of them, 8192 unless given) or tokens (files
    of ids, of nanoGPT and llm.c or .npy); `length` is the number of tokens of a window.

    A folder with train.txt, valid.txt and test.txt is read as it is split; any other text is
    divided in 90 %, 5 % and 5 %, at most 100,000 characters to test on: whole files of ten or more,
    else at line ends. Characters have added positions and arms.language: default,
    norm_matched_mimetic, mimetic. Other levels have rotary positions, RMSNorm, SwiGLU and
    arms.first_layer: default, log_p, counts_std_25 and its controls. `init` takes those of
    arms.positional, too.
    """
    check_choice("level", level, LEVELS.values())
    config = short_text(width, depth, heads, steps, init if level == "char" else ())
    config.update(name="text", batch=16, checkpoint_every=200)
    config.data.update(name=f"text_{level}", length=length, valid=length, vocabulary=vocab)
    if level != "char":
        config.model.update(MODERN)
        config.optimizer.learning_rate = 4e-3
        every = arms.first_layer() | arms.positional()
        config.arms = arms.chosen(init, every, arms.FIRST_LAYER)
    # A test may take as long as 30 steps.
    config.eval.update(every=max(200, steps // 10), batch=32)
    return config
