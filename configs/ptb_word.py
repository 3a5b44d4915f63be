"""Penn Treebank by words: the self-attention paper's language table.

Paper: Mimetic Initialization of Self-Attention Layers, table 6, word-level PTB.
Command: python main.py --config=configs/ptb_word.py --config.data.dir=DIR --workdir=runs/ptb_word
Published, base -> mimetic: perplexity 84.84 -> 82.34 (384/12/8, 100 epochs).
Hardware: not stated there.
Differs from the paper: as configs/ptb_char.py. Dropout of whole embeddings is the paper's; its rate
    and the others are Bai et al.'s.
"""

from ml_collections import ConfigDict

from configs.arms import chosen, language
from configs.default import arguments, default_text
from configs.ptb_char import set_optimizer


def get_config(text: str = "") -> ConfigDict:
    """Arguments: those of configs/ptb_char.py."""
    args = arguments(
        text, width=384, depth=12, heads=8, epochs=100.0, optimizer="adamw", init="all"
    )
    config = default_text()
    config.name = f"ptb_word_{args.width}_{args.depth}_{args.heads}"
    config.seeds = (0, 1, 2)
    config.data.name = "ptb_word"
    config.data.length, config.data.valid = 80, 40
    config.batch = 16
    config.epochs = args.epochs
    for name in ("width", "depth", "heads"):
        config.model[name] = args[name]
    config.model.dropout = 0.45
    config.model.embedding_dropout = 0.25

    config.optimizer.clip = 0.35
    config.optimizer.plateau = "halve"
    set_optimizer(config, args.optimizer)

    config.eval.batch = 16
    config.eval.every_epochs = 1.0
    config.log_every = 100
    config.checkpoint_every = 500
    config.arms = chosen(args.init, *language(args.depth))
    return config
