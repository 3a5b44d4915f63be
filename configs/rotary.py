"""Language models of today in earnest: rotary positions, RMSNorm, SwiGLU, 21 million parameters.

Paper: none; how long it lasts that heads start by looking at a distance is our question.
Command: python launch/reproduce.py today/large --data_dir=FOLDER
    python main.py --config=configs/rotary.py:init=default+positional --config.data.dir=FOLDER
Hardware: one H100 or H200; a thousand steps take about 20 seconds.
Chosen: sizes for what a GPU trains in seconds; arms choose their learning rates at seed 100
    (papers/today.py).
"""

from ml_collections import ConfigDict

from configs import arms
from configs.default import arguments, default, model
from configs.recipes import beside_positions

LENGTH = 512

TEXTS = {"source": "text_char", "wikitext": "text_char", "ptb": "ptb_char_raw"}
"""Data sets by the text; those of one's own are folders of train.txt, valid.txt and test.txt."""


def get_config(text: str = "") -> ConfigDict:
    """Arguments: text, width, depth, heads, steps, init.

    `text` is source (100 MB of Python out of wheels), wikitext (WikiText-2) or ptb (the Penn
    Treebank), read by characters.
    """
    sizes = {"width": 384, "depth": 12, "heads": 8}
    args = arguments(text, {"text": TEXTS}, text="ptb", **sizes, steps=1000, init="all")
    config = default("text")
    config.name = f"rotary_{args.text}_{args.width}_{args.depth}_{args.steps}"
    config.data.name = TEXTS[args.text]
    config.data.length = config.data.valid = LENGTH
    config.batch, config.eval.batch = 32, 64
    config.steps = args.steps
    config.eval.every = 0
    config.checkpoint_every = max(1000, args.steps // 4)
    config.log_every = 100
    config.model = model(
        "gpt",
        **{name: args[name] for name in sizes},
        positions="rotary",
        rms_norm=True,
        swiglu=True,
        mlp_ratio=8 / 3,
        base="torch",
        embedding_std=beside_positions(args.width),
        scan=True,
        dtype="bfloat16",
    )
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup = args.steps // 10
    config.optimizer.weight_decay = 0.1
    config.optimizer.no_decay = True
    config.optimizer.clip = 1.0
    every = arms.positional(args.depth, args.heads, LENGTH)
    config.arms = arms.chosen(args.init, every, arms.POSITIONAL)
    return config
