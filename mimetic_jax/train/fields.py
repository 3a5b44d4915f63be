"""Every field of a configuration, declared once: type, default, meaning, range, what it affects.

    warmup: int = field(0, "steps of rising rate; or set warmup_epochs", STEPS)

All else that is known of a field is derived from here by `schema`. The fields of a model, of the
augmentation and of mixing are those of their classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from mimetic_jax.base.typed import NOT_NEGATIVE, SEED, Range
from mimetic_jax.data import Augmentation, Mixing
from mimetic_jax.data.augment.pipeline import PIXELS
from mimetic_jax.rules.rule import Rule
from mimetic_jax.train.schedule import Plateau, Scaling, ScheduleName

Affects = frozenset[str]

RESULT: Affects = frozenset({"program", "result"})
"""The compiled steps, and so what they compute."""
DATA: Affects = frozenset({"data", "program", "result"})
"""Which examples are loaded, and so everything."""
PLACE: Affects = frozenset({"data"})
"""Where they are loaded from; the same examples have the same fingerprint anywhere."""
MACHINE: Affects = frozenset({"program"})
"""The compiled steps, but their results at most by rounding."""
START: Affects = frozenset({"result"})
"""Where a run starts, and at which rate: arms that differ in that share a program."""
NOTHING: Affects = frozenset()

PART = Range(0, 1, above=True)
VIEW = Range(0.01, 1)
DECAY = Range(0, 1, below=True)
STEPS = Range(0, 2**31 - 1)  # the counter of steps has 32 bits
EPOCHS = Range(0, 10**6)
AT_ONCE = Range(1, 10**6)  # arrays of that length are on the device
DEVICES = Range(1, 2**20)
HEADS = Range(0, 10**6)
RATE = Range(0, above=True)

MODEL_RANGES = {
    "depth": Range(1, 1_000),
    "dropout": DECAY,
    "heads": Range(1, 2**16),
    "mlp_ratio": Range(0, 1024, above=True),
    "patch": Range(1, 2**14),
    "embedding_std": NOT_NEGATIVE,
    "token_std": NOT_NEGATIVE,
    "width": Range(1, 2**20),
}
"""Of fields that models have in common; each model checks the rest of its own."""


def field(default: Any, help: str, within: Range | None = None, affects: Any = None) -> Any:
    """Return a field of a section; its default is the section's."""
    metadata = {"help": help, "within": within, "affects": affects}
    return dataclasses.field(default=default, metadata=metadata)


def section(of: type) -> Any:
    """Return a section of a configuration: the fields of a class."""
    return dataclasses.field(default=None, metadata={"section": of})


class Section:
    """The base class of sections, with what depends on a field that doesn't say it."""

    affects: ClassVar[Affects] = RESULT


@dataclasses.dataclass(frozen=True)
class ImageData(Section):
    """`config.data` of task "images"."""

    name: str = field("digits", "the data set: see data/sets/table.py", affects=DATA)
    dir: str | None = field(None, "folder that holds the data set", affects=PLACE)
    classes: int = field(
        0, "classes, if not those published; 0: as published", Range(0, 10**6), affects=DATA
    )
    size: int = field(
        0,
        "side of the images that the model sees, in pixels; 0: the set's own, 64 of folders",
        PIXELS,
        affects=DATA,
    )
    mean: tuple[float, ...] = field(
        (), "per channel, to subtract; empty: the data set's own", Range(-(10**6), 10**6)
    )
    std: tuple[float, ...] = field(
        (), "per channel, to divide by; empty: the set's own", Range(1e-6, 10**6)
    )
    subset: float = field(1.0, "share of each class to train on", PART, affects=DATA)
    per_seed: int = field(
        0,
        "images that each seed trains on, of its own; a fifth of all is left to choose rates on; "
        "0: all seeds train on the same",
        Range(0, 10**9),
        DATA,
    )
    held_out: float = field(
        0.0, "share of them to test on, instead of the test images", DECAY, affects=DATA
    )
    repeats: int = field(1, "times each streamed image comes in an epoch", Range(1, 1000))
    eval_fraction: float = field(1.0, "share of its shorter side that a test image keeps", VIEW)
    augment: Augmentation = section(Augmentation)
    mix: Mixing = section(Mixing)


@dataclasses.dataclass(frozen=True)
class TextData(Section):
    """`config.data` of task "text"."""

    name: str = field("ptb_char", "the text: ptb_word, wikitext2, text_char, …", affects=DATA)
    vocabulary: int = field(
        0,
        "tokens: of text_bpe, to learn, 0: 8192; of text_tokens, 0: the files tell",
        Range(0, 2**20),
        DATA,
    )
    dir: str | None = field(None, "folder or file that holds the text", affects=PLACE)
    subset: float = field(1.0, "first share of the training text to train on", PART, affects=DATA)
    length: int = field(400, "tokens of a window", AT_ONCE)
    valid: int = field(320, "last tokens of a window, which are scored", AT_ONCE)
    shuffled: bool = field(
        True,
        "windows in an order, and from a start, that the seed draws; False: as the text has them",
    )


@dataclasses.dataclass(frozen=True)
class Optimizer(Section):
    """`config.optimizer`."""

    name: Literal["adamw", "adam", "muon", "sgd"] = field("adamw", "rule of the updates")
    learning_rate: float = field(1e-3, "highest rate of the schedule", RATE, START)
    base_batch: int = field(0, "batch that learning_rate is for; 0: this one", NOT_NEGATIVE, START)
    scaling: Scaling = field("linear", "of learning_rate from base_batch to batch", None, START)
    schedule: ScheduleName = field("cosine", "learning rate over the steps")
    warmup: int = field(0, "steps of rising rate; or set warmup_epochs", STEPS)
    warmup_epochs: float = field(0.0, "the same in epochs; or set warmup", EPOCHS)
    warmup_from: float = field(0.0, "learning rate of the first step", NOT_NEGATIVE)
    final: float = field(0.0, "learning rate where a cosine ends", NOT_NEGATIVE)
    plateau: Literal["", Plateau] = field("", "rule that lowers the rate by the validation loss")
    cooldown_epochs: float = field(0.0, "last epochs, at rate `final`", EPOCHS)
    weight_decay: float = field(0.01, "of adamw and muon, times the learning rate", NOT_NEGATIVE)
    eps: float = field(1e-8, "Adam's ε", NOT_NEGATIVE)
    clip: float = field(0.0, "largest global norm of the gradient; 0: no limit", NOT_NEGATIVE)
    no_decay: bool = field(False, "no weight decay on biases, norms and what the model names")
    rate_rules: tuple[tuple[str, Annotated[float, NOT_NEGATIVE]], ...] = field(
        (), "((regular expression of paths, factor of learning_rate), …); 0 freezes"
    )


Role = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class MeshAxes(Section):
    """`config.mesh`."""

    affects: ClassVar[Affects] = MACHINE

    data: int = field(
        -1, "devices over which a batch is sharded; -1: what the other axes leave", Range(-1, 2**20)
    )
    fsdp: int = field(1, "devices over which parameters are sharded", DEVICES)
    tensor: int = field(1, "devices over which heads and hidden units are sharded", DEVICES)


@dataclasses.dataclass(frozen=True)
class Evaluations(Section):
    """`config.eval`."""

    batch: int = field(500, "test examples at once", AT_ONCE)
    every: int = field(0, "steps, or set every_epochs; 0: only at the start and the end", STEPS)
    every_epochs: float = field(0.0, "epochs, or set every", EPOCHS)


@dataclasses.dataclass(frozen=True)
class OfComparison(Section):
    """Fields that all arms share, and that a later command may change."""

    affects: ClassVar[Affects] = NOTHING

    name: str = field("unnamed", "the workdir defaults to runs/NAME")
    seeds: tuple[int, ...] = field(
        (0,), "each arm is trained once per seed: 0-7, range(8) or (0, 1); 8 is seed 8 alone", SEED
    )
    rates: tuple[float, ...] = field(
        (), "learning rates that each arm tries first, to keep its best; empty: learning_rate", RATE
    )
    together: int = field(1, "runs of a program that train at once, as a group", Range(1, 10**4))
    log_every: int = field(50, "steps between two log lines", Range(1, 2**31 - 1))
    checkpoint_every: int = field(0, "steps; 0: only after the last", STEPS)
    keep_checkpoints: int = field(2, "newest checkpoints to keep", Range(1, 10**6))
    arms: Mapping[str, Any] = field(None, "overrides of these fields by arm; none: one arm")


@dataclasses.dataclass(frozen=True)
class Fields(OfComparison):
    """A configuration."""

    affects: ClassVar[Affects] = RESULT

    task: Literal["images", "text"] = field("images", "what is trained", affects=DATA)
    scheme: Any = field((), "schemes applied to the model's own draw, left to right", None, START)
    batch: int = field(128, "examples per step, divisible by the devices", AT_ONCE)
    epochs: float = field(0.0, "of training; or set steps", EPOCHS)
    steps: int = field(0, "of training; or set epochs", STEPS)
    label_smoothing: float = field(0.0, "share of the label that all classes get equally", DECAY)
    ema: float = field(0.0, "decay of the moving average, which is tested too; 0: none", DECAY)
    init_from: str | None = field(None, "run or file to start from", affects=START)
    init_parts: tuple[Literal["attention", "position"], ...] = field(
        (), "parts of init_from to take; empty: all", affects=START
    )
    data: Any = field(None, "the data")
    model: Any = field(None, "a key of mimetic_jax.models.MODELS, or package.module:Class")
    rules: tuple[tuple[str, Role, str] | tuple[str, Role, str, int] | Rule, ...] = field(
        (), "attention_rules(…), or ((path, role, layout[, heads]), …); empty: the model's own"
    )
    num_heads: int = field(0, "of kernels that store heads flattened, by rules", HEADS)
    num_kv_heads: int = field(0, "of their keys and values; 0: num_heads", HEADS)
    optimizer: Optimizer = section(Optimizer)
    mesh: MeshAxes = section(MeshAxes)
    eval: Evaluations = section(Evaluations)
    max_dispatch: int = field(
        50, "steps per dispatch, which the device runs without the host", AT_ONCE, MACHINE
    )


TASKS: dict[str, tuple[type[Section], str, dict[str, Any]]] = {
    "images": (ImageData, "vit", {}),
    "text": (TextData, "gpt", {"eval.batch": 10}),
}
"""By task: its data, its default model, and other defaults than those above."""
