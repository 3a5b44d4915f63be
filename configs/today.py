"""Closed-form starts for today's models: rotary positions, RMSNorm, SwiGLU, QK norm; no skips.

Paper: none; which of the starts that were proposed for such models helps is our question.
Command: python launch/reproduce.py today --data_dir=DIR
    python main.py --config=configs/today.py:task=text,init=default+identity
Chosen: sizes and lengths for what a CPU trains in seconds; arms choose their learning rates at
    seeds 100 and 101 (papers/today.py).
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import arms
from configs.default import arguments, default, model
from configs.recipes import beside_positions, few_images
from mimetic_jax import Rule, attention_rules, mlp_rules
from mimetic_jax.base.errors import unknown
from mimetic_jax.schemes import (
    CorrelatedMLP,
    HeadIdentity,
    Independent,
    Mimetic,
    Orthogonal,
    OrthogonalValueOut,
    SinCos,
    SymmetricQueryKey,
    ValueOutPerHead,
    mimetic_language,
)

TEXTS = {"text": "python_docs", "ptb": "ptb_char_raw"}
TASKS = (*TEXTS, "copying", "recall", "images")

GATED = (
    *attention_rules(),
    *mlp_rules(first="up", second="fc2"),
    Rule("fc1/kernel", "mlp_gate", "d f"),
)
"""Rules for SwiGLU of models/gpt.py, which no table describes: fc2(silu(fc1(x)) ∘ up(x))."""


def get_config(text: str = "") -> ConfigDict:
    """Arguments: task, width, depth, patch, steps, optimizer, init.

    `task` is text, ptb, copying, recall or images. `init` is "all" or names of arms joined by "+";
    of images, arms of models with skip connections and of models without.
    """
    args = arguments(
        text, task="text", width=32, depth=2, patch=4, steps=200, optimizer="adamw", init="all"
    )
    if args.task not in TASKS:
        raise unknown("task", args.task, TASKS)
    config = _images(args) if args.task == "images" else _today(args)
    config.name = f"today_{args.task}_{args.width}_{args.depth}_{args.steps}"
    config.steps = args.steps
    config.eval.every = 0  # testing takes as long as training
    config.optimizer.name = args.optimizer
    config.optimizer.warmup = args.steps // 10
    config.optimizer.clip = 1.0
    config.arms = arms.chosen(args.init, _skipless() if args.task == "images" else _language())
    return config


def _today(args: ConfigDict) -> ConfigDict:
    of_text = args.task in TEXTS
    config = default("text" if of_text else "recall")
    config.model = model("gpt", width=args.width, depth=args.depth, heads=args.width // 16)
    config.model.positions = "rotary"
    config.model.qk_norm = config.model.rms_norm = config.model.swiglu = True
    config.model.mlp_ratio = 8 / 3
    config.model.base = "torch"
    config.rules = GATED
    config.optimizer.schedule = "constant"
    config.optimizer.weight_decay = 0.01
    config.batch = 16
    if of_text:
        config.data.name = TEXTS[args.task]
        config.data.length = config.data.valid = 64
        config.model.embedding_std = beside_positions(args.width)
        config.eval.batch = 64
    else:
        config.data.name = {"recall": "associative"}.get(args.task, args.task)
        config.data.num_test = 64
        config.model.embedding = "uniform"
        if args.task == "copying":
            config.data.length = 8
        else:
            config.data.vocabulary, config.data.pairs, config.data.queries = 32, 4, 4
    return config


def _language() -> arms.Arms:
    query_key = mimetic_language(alpha_vo=None, beta_vo=None)
    anti = CorrelatedMLP(-0.5)
    found: arms.Arms = {"default": {}} | arms.with_noise(
        {
            "identity": {"scheme": (HeadIdentity(),)},
            "identity_copying": {"scheme": (HeadIdentity(), OrthogonalValueOut(1.0, 0.1, 0.5))},
            "each": {"scheme": (query_key, ValueOutPerHead(0.2, -0.2))},
            "mimetic": {"scheme": (mimetic_language(),)},
            "strong": {"scheme": (arms.STRONG,)},
        }
    )
    # Their norms are those of the default, which is their control.
    found["symmetric"] = {"scheme": (SymmetricQueryKey(),)}
    found["anti"] = {"scheme": (anti,)}
    found["identity_anti"] = {"scheme": (HeadIdentity(), anti)}
    found["small"] = {"scheme": (Independent(power=0.75),), "model": {"norm_epsilon": 1e-12}}
    return found


def _images(args: ConfigDict) -> ConfigDict:
    sizes = {"width": args.width, "depth": args.depth, "heads": args.width // 16}
    config = few_images(0.2, patch=args.patch, base="torch", **sizes)
    config.batch = 32
    config.optimizer.weight_decay = 0.01
    return config


def _skipless() -> arms.Arms:
    """Arms without skip connections, and the same starts with them: skips_NAME."""
    scheme = (
        SinCos(),
        Orthogonal(),
        Mimetic(alpha_qk=2.0, beta_qk=0.6, alpha_vo=None, beta_vo=None),
        OrthogonalValueOut(3.0, 3.0),
    )
    starts = {"default": (SinCos(),), "closed": scheme}
    without: arms.Arms = {
        name: {"scheme": start, "model": {"skipless": True}} for name, start in starts.items()
    }
    beside: arms.Arms = {f"skips_{name}": {"scheme": start} for name, start in starts.items()}
    return arms.with_noise(without | beside)
