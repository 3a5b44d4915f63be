"""WikiText-103: the self-attention paper's language table.

Paper: Mimetic Initialization of Self-Attention Layers, table 6, WikiText-103.
Command: python main.py --config=configs/wikitext103.py --config.data.dir=DIR \
    --config.model.dtype=bfloat16 --workdir=runs/wikitext103
Published, base -> mimetic: perplexity 28.87 -> 28.21 (410/16/10, 50 epochs).
Hardware: not stated there.
Differs from the paper: batch, window lengths, dropout and optimizer aren't stated. Batch 32 of 256
    tokens, 128 of which count, and dropout 0.1 are our choice; the plateau rule is that of words.
"""

from ml_collections import ConfigDict

from configs.arms import chosen, language
from configs.default import arguments, default_text
from configs.recipes import constant_rate


def get_config(text: str = "") -> ConfigDict:
    """Arguments: those of configs/ptb_char.py."""
    args = arguments(
        text, width=410, depth=16, heads=10, epochs=50.0, optimizer="adamw", init="all"
    )
    config = default_text()
    config.name = f"wikitext103_{args.width}_{args.depth}_{args.heads}"
    config.seeds = (0, 1, 2)
    config.data.name = "wikitext103"
    config.data.length, config.data.valid = 256, 128
    config.batch = 32
    config.epochs = args.epochs
    for name in ("width", "depth", "heads"):
        config.model[name] = args[name]
    config.model.dropout = 0.1
    config.model.scan = config.model.remat = True  # memory of one block's insides

    config.optimizer.clip = 0.25
    config.optimizer.plateau = "halve"
    constant_rate(config, args.optimizer)

    config.eval.batch = 32
    config.eval.every_epochs = 1.0
    config.log_every = 500
    config.checkpoint_every = 2500
    config.arms = chosen(args.init, *language(args.depth))
    return config
