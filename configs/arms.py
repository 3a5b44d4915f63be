"""Arms that several configurations compare, and how `init` chooses among them.

A comparison has the arms of "all", others, and groups of arms such as the rows of a table.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ml_collections import ConfigDict

from mimetic_jax.base.errors import unknown
from mimetic_jax.models.local_attention import FORMS
from mimetic_jax.schemes import (
    DCT,
    AntiCorrelated,
    CompleteP,
    Conditioned,
    ConstantBias,
    ConvMimetic,
    IDInit,
    Impulse,
    ImpulseBias,
    Independent,
    MeanShift,
    Mimetic,
    MimeticSSM,
    NormMatched,
    Orthogonal,
    Polar,
    Scheme,
    Shuffled,
    SinCos,
    Sinusoidal,
    TFixup,
    UniformAttention,
    Zero,
    ZeroOut,
    ZeroOutputs,
    mimetic_language,
)

Arms: TypeAlias = dict[str, Mapping[str, Any]]
Groups: TypeAlias = dict[str, Arms]

_IMPULSE = Impulse(noise_vo="normal", zero_bias=True)
"""Beside `Mimetic`, from which it differs in query and key alone."""

STRONG = mimetic_language(beta_vo=-0.4)
"""Twice the -I that the paper has in W_V W_out of language models."""


def chosen(
    init: str, compared: Arms, others: Arms | None = None, groups: Groups | None = None
) -> ConfigDict:
    """The arms that `init` names, in its order: names of arms or groups, joined by "+".

    "all" is the group `compared`; "table5+default" adds the default to a group.

    Raises:
        InputError: there is no arm or group of that name.
    """
    arms = {name: {name: arm} for name, arm in (compared | (others or {})).items()}
    named = {"all": compared} | arms | (groups or {})
    picked: Arms = {}
    for name in init.split("+"):
        if name not in named:
            raise unknown("init", name, named)
        picked |= named[name]
    return ConfigDict(picked, sort_keys=False)


def controlled(name: str, *schemes: Scheme) -> Arms:
    """The default, schemes, and the control of these."""
    arm = {"scheme": schemes}
    return {"default": {}, "norm_matched": noise(arm), name: arm}


_WITHOUT_STRUCTURE = (
    *(SinCos, ConstantBias, ZeroOut, ZeroOutputs, Independent, UniformAttention, TFixup),
    *(CompleteP, NormMatched, Shuffled),
)
"""Schemes that stay in a control: positions, biases, zeros, and kernels of independent entries."""


def noise(arm: Mapping[str, Any]) -> Mapping[str, Any]:
    """The control of an arm: noise of their norms in the place of schemes that have structure."""
    found = (
        one if isinstance(one, _WITHOUT_STRUCTURE) else NormMatched(one) for one in arm["scheme"]
    )
    return {**arm, "scheme": tuple(found)}


def with_noise(arms: Arms, known: Arms | None = None) -> Arms:
    """Arms, and after them norm_matched_NAME, the control of each that has structure.

    Args:
        arms: by name.
        known: other arms; what has its control among these or `arms` gets no second one.
    """
    every = [*arms.values(), *(known or {}).values()]
    controls = {
        f"norm_matched_{name}": noise(arm)
        for name, arm in arms.items()
        if "scheme" in arm and noise(arm) not in every
    }
    return arms | controls


def attention(scale: float = 1.0) -> Arms:
    """Arms of the self-attention paper; `scale` is γ of the sin-cos positions."""
    positions, mimetic = SinCos(scale=scale), Mimetic()
    return {
        "default": {},  # learned positions
        "sincos": {"scheme": (positions,)},
        "norm_matched": {"scheme": (positions, NormMatched(mimetic))},
        "mimetic": {"scheme": (positions, mimetic)},
    }


def vision(scale: float, pretrained: str = "") -> tuple[Arms, Arms, Groups]:
    """The self-attention paper's arms for images, and its rivals: compared, others and groups.

    Groups: figure4 (γ), figure6 (share of the training data) and figure10 (α and β), whose values
    are ours; grid, a smaller figure10 around the paper's values.

    Args:
        scale: γ of the sin-cos positions.
        pretrained: file of a ViT of the same width, for the arm of that name, which takes attention
            and positions, and for pretrained_whole; none: no such arms.
    """
    compared = attention(scale)
    # From the paper's positions, so that they differ in attention and MLPs alone.
    others: Arms = {
        name: {"scheme": (SinCos(scale=scale), *added)} for name, added in _vision().items()
    }
    others["mimetic_learned"] = {"scheme": (Mimetic(),)}
    # Solved for random positions: those of sin and cos have too low a rank.
    others["impulse"] = {"scheme": (_IMPULSE,)}
    others |= _changed_models(scale)
    # The paper doesn't say which positions these have.
    others["t_fixup_learned"] = {"scheme": (TFixup(),)}
    others["zero_learned"] = {"scheme": (Zero(),)}
    if pretrained:
        parts = ("attention", "position")
        others["pretrained"] = {"init_from": pretrained, "init_parts": parts}
        others["pretrained_whole"] = {"init_from": pretrained}
    others = with_noise(others, compared)
    every = compared | others
    groups: Groups = {}
    groups["figure4"] = {
        f"scale_{gamma}": {"scheme": (SinCos(scale=gamma / 100), Mimetic())}
        for gamma in (50, 100, 150, 200, 300, 400)
    }
    groups["figure6"] = {
        f"{name}_{share}": {**every[name], "data": {"subset": share / 100}}
        for share in (10, 20, 40, 60, 80, 100)
        for name in ("default", "mimetic")
    }
    positions, steps = SinCos(scale=scale), range(0, 101, 20)
    groups["figure10"] = {
        **_grid("vo", Mimetic(alpha_qk=0.6, beta_qk=0.3), steps, steps, positions),
        **_grid("qk", Mimetic(), steps, steps, positions),
    }
    groups["grid"] = {
        **_grid("vo", Mimetic(), (0, 40, 80), (20, 40, 80), positions),
        **_grid("qk", Mimetic(), (0, 70, 140), (35, 70, 140), positions),
    }
    return compared, others, groups


def _vision() -> dict[str, tuple[Scheme, ...]]:
    mimetic, query_key, value_out = (
        Mimetic(),
        Mimetic(alpha_vo=None, beta_vo=None),
        Mimetic(alpha_qk=None, beta_qk=None),
    )
    return {
        "shuffled": (Shuffled(mimetic),),
        "query_key": (query_key,),
        "value_out": (value_out,),
        "positive": (Mimetic(beta_vo=0.4),),
        "t_fixup": (TFixup(),),
        "zero": (Zero(),),
        "uniform": (UniformAttention(),),
        "conditioned": (Conditioned(),),
        "orthogonal": (Orthogonal(),),
        "dct": (DCT(),),
        "sinusoidal": (Sinusoidal(),),
        "polar": (Polar(mimetic),),
    }


_LAYER_SCALES = {
    f"layer_scale_{form}_{tenths}": {"layer_scale": form, "scale_init": tenths / 10}
    for form in ("branch", "skip")
    for tenths in range(1, 11)
}
"""The paper reports the best of ten initial values in [0, 1] for both forms."""


def _changed_models(scale: float) -> Arms:
    """Arms whose attention is another, in tables 2 and 5 and in the section on convolution."""
    positions = SinCos(scale=scale)
    gated = {"attention": "gpsa", "pool": "mean", "qkv_bias": False}
    query_key = Mimetic(alpha_vo=None, beta_vo=None)
    value_out = Mimetic(alpha_qk=None, beta_qk=None)
    arms: Arms = {
        "gpsa_8": {"model": {**gated, "heads": 8}, "scheme": (positions,)},
        "gpsa_4": {"model": {**gated, "heads": 4}, "scheme": (positions,)},
        "gpsa_4_value_out": {"model": {**gated, "heads": 4}, "scheme": (positions, value_out)},
    }
    arms |= {form: {"model": {"attention": form}} for form in FORMS if form != "gpsa"}
    # Their value and out are the model's own.
    arms |= {
        name: {"model": fields, "scheme": (positions, query_key)}
        for name, fields in _LAYER_SCALES.items()
    }
    return arms


def _grid(
    pair: str, mimetic: Mimetic, alphas: Sequence[int], betas: Sequence[int], *before: Scheme
) -> Arms:
    """`mimetic` with other α and β of "qk", or α and -β of "vo", in hundredths; not both are 0."""
    sign = {"qk": 1, "vo": -1}[pair]
    values: dict[str, dict[str, Any]] = {
        f"{pair}_{a}_{b}": {f"alpha_{pair}": a / 100, f"beta_{pair}": sign * b / 100}
        for a, b in itertools.product(alphas, betas)
        if a or b
    }
    return {
        name: {"scheme": (*before, dataclasses.replace(mimetic, **changed))}
        for name, changed in values.items()
    }


def structured() -> tuple[Arms, Arms]:
    """Arms of the structured paper's released code: compared by default, and the others.

    The mimetic arm of that code keeps the learned positions, draws uniform noise, and stores value
    and out untransposed: `Mimetic.port()`. None of its arms touches a bias.
    """
    impulse = Impulse()
    query_key = dataclasses.replace(impulse, alpha_vo=None, beta_vo=None, noise_vo="normal")
    others: Arms = {
        "shuffled": {"scheme": (Shuffled(impulse),)},
        "mimetic_learned": {"scheme": (Mimetic(),)},  # not transposed
        "impulse_paper": {"scheme": (Impulse.paper(),)},
        # Section 4.1: no impulses.
        "positive_filters": {"scheme": (dataclasses.replace(impulse, order="positive"),)},
        "impulse_query_key": {"scheme": (query_key,)},
        "conditioned": {"scheme": (Conditioned(),)},
    }
    compared = _beside_port(impulse)
    return compared, with_noise(others, compared)


def windows(strength: float) -> Arms:
    """Arms of the structured paper for models with windows, whose impulse is in their biases.

    The mimetic arm is that of `structured`. `strength` is the gain of the bias, not published.
    """
    return _beside_port(ImpulseBias(strength=strength))


def _beside_port(impulse: Scheme) -> Arms:
    """The default, impulses and mimetic attention of that code, each of the two with its noise."""
    compared = controlled("impulse", impulse)
    compared["mimetic"] = {"scheme": (Mimetic.port(),)}
    compared = with_noise(compared)
    names = ("default", "norm_matched", "norm_matched_mimetic", "mimetic", "impulse")
    return {name: compared[name] for name in names}


def filters(b: float) -> Arms:
    """Arms of the MLP paper's ConvNeXts: filters with structure, alone and with a mean."""
    conv = ConvMimetic()
    return with_noise(
        {
            "conv": {"scheme": (conv,)},
            "conv_mean_shift": {"scheme": (conv, MeanShift(b))},
        }
    )


def attention_beside(b: float) -> Arms:
    """Arms of the MLP paper's ViTs: attention with structure, alone and with a mean."""
    positions, mimetic = SinCos(), Mimetic()
    return with_noise(
        {
            "mimetic": {"scheme": (positions, mimetic)},
            "mimetic_mean_shift": {"scheme": (positions, mimetic, MeanShift(b))},
        }
    )


def convnext(b: float) -> tuple[Arms, Arms]:
    """Arms of the MLP paper's figure 2 of a ConvNeXt: those compared by default, and the others."""
    beside: Arms = filters(b)
    compared: Arms = {
        "default": {},
        "norm_matched": beside["norm_matched_conv_mean_shift"],
        **with_noise({"mean_shift": {"scheme": (MeanShift(b),)}}),
        **{name: beside[name] for name in ("conv", "norm_matched_conv", "conv_mean_shift")},
    }
    others: Arms = {
        "per_input": {"scheme": (MeanShift(b, per_input=True),)},  # eq. 1
        "anti_correlated": {"scheme": (AntiCorrelated(),)},
    }
    return compared, with_noise(others)


SWEEP = (5, 10, 20, 50)
"""Absolute values of b in the sweep of a ConvNeXt, in thousandths."""


def mean_sweep(b: float, width: int) -> Groups:
    """Arms of the MLP paper's figure 4, as groups.

    "sweep": baselines, and a mean of each size and sign beside the default; "baselines": the means
    beside zero_bias, normal and learned_sum, such as normal_b_plus_20.
    """
    std = (3 * width) ** -0.5  # of PyTorch's default, U(±1/√width)
    largest = MeanShift(SWEEP[-1] / 1000 / std)
    baselines: Arms = {
        "default": {},
        f"norm_matched_{SWEEP[-1]}": {"scheme": (NormMatched(largest),)},
        "zero_bias": {"scheme": (ConstantBias(0.0),)},
        "constant_bias": {"scheme": (ConstantBias(b * std),)},
        "normal": {"model": {"base": "timm"}},
        "learned_sum": {"model": {"learn_sum": True}},
    }
    means = {
        f"b_{name}_{size}": sign * size / 1000
        for name, sign in (("minus", -1), ("plus", 1))
        for size in SWEEP
    }
    of_std: dict[str, float] = {"zero_bias": std, "normal": 0.02, "learned_sum": std}
    beside: Arms = {
        f"{baseline}_{name}": {
            **baselines[baseline],
            "scheme": (*baselines[baseline].get("scheme", ()), MeanShift(mean / deviation)),
        }
        for baseline, deviation in of_std.items()
        for name, mean in means.items()
    }
    shifts: Arms = {name: {"scheme": (MeanShift(mean / std),)} for name, mean in means.items()}
    return {"sweep": baselines | shifts, "baselines": beside}


def mlp(b: float, width: int, base: str) -> tuple[Arms, Arms]:
    """Arms of the MLP paper: those compared by default, and the others.

    The constant bias is as large as the shift is: b standard deviations of the first kernel.
    """
    std = {"torch": (3 * width) ** -0.5, "timm": 0.02}[base]
    shift: Arms = {"mean_shift": {"scheme": (MeanShift(b),)}}
    compared: Arms = {
        "default": {},
        "norm_matched": noise(shift["mean_shift"]),
        "constant_bias": {"scheme": (ConstantBias(b * std),)},
        **shift,
    }
    others: Arms = {
        "per_input": {"scheme": (MeanShift(b, per_input=True),)},  # eq. 1
        **attention_beside(b),
        "learned_sum": {"model": {"learn_sum": True}},  # b · sum(x), b learned
        "anti_correlated": {"scheme": (AntiCorrelated(),)},
    }
    return compared, with_noise(others)


def language() -> tuple[Arms, Arms]:
    """Arms of the self-attention paper's language models: those compared, and the others."""
    mimetic = mimetic_language()
    compared = controlled("mimetic", mimetic)
    others: Arms = {
        "shuffled": {"scheme": (Shuffled(mimetic),)},
        "query_key": {"scheme": (mimetic_language(alpha_vo=None, beta_vo=None),)},
        "value_out": {"scheme": (mimetic_language(alpha_qk=None, beta_qk=None),)},
        "zero_out": {"scheme": (ZeroOut(),)},
        # It replaced the identity form in a GPT speed run: all four kernels, 0.5 D^-1/2.
        "uniform": {"scheme": (UniformAttention(),)},
        "positive": {"scheme": (mimetic_language(beta_vo=0.2),)},
        "strong": {"scheme": (STRONG,)},
        "t_fixup": {"scheme": (TFixup(decoder=True),)},
        "conditioned": {"scheme": (Conditioned(),)},
        "orthogonal": {"scheme": (Orthogonal(),)},
        "dct": {"scheme": (DCT(),)},
        "sinusoidal": {"scheme": (Sinusoidal(),)},
    }
    return compared, with_noise(others, compared)


def recall(model: str) -> tuple[Arms, Arms]:
    """Arms of recall by "mamba" or "gpt": compared, and the others.

    The others of "mamba" are all 16 combinations of the four parts.
    """
    if model == "gpt":
        compared, others = language()
        others |= with_noise({"vision": {"scheme": (Mimetic(),)}})
        names = (
            *("vision", "norm_matched_vision", "strong", "norm_matched_strong", "query_key"),
            *("norm_matched_query_key", "value_out", "norm_matched_value_out", "shuffled"),
            *("positive", "norm_matched_positive"),
        )
        return compared, {name: others[name] for name in names}
    mimetic = MimeticSSM()
    compared = controlled("mimetic", mimetic)
    parts: Arms = {name: {"scheme": (_of_parts(name),)} for name in _PARTS_OF_SSM}
    parts["shuffled"] = {"scheme": (Shuffled(mimetic),)}
    return compared, with_noise(parts, compared)


def league(kind: str, width: int) -> Arms:
    """Every initialization that fits a "vit" or a "gpt" of width D, each by a scheme of one line.

    An arm norm_matched_NAME is the control of one that has structure: noise of its norms, with the
    same positions, zeros and learning rates.
    """
    is_gpt = kind == "gpt"
    before = () if is_gpt else (SinCos(),)
    own, other = Mimetic(), mimetic_language()
    if is_gpt:
        own, other = other, own
    shift, zeros = MeanShift(), ZeroOutputs()
    of_mup = {"optimizer": {"rate_rules": mup(width)}}
    found: Arms = {
        "default": {"scheme": ()},
        "torch": {"scheme": (), "model": {"base": "torch"}},
        "normal": {"scheme": (Independent(0.02, 0.0),)},
        "gpt2": {"scheme": (Independent.gpt2(),)},
        "small": {"scheme": (Independent(power=0.8),)},
        "spectral": {"scheme": (Independent(spectral=True),)},
        "speedrun": {"scheme": (Independent(0.5, uniform=True), zeros)},
        "zero_outputs": {"scheme": (zeros,)},
        "mup": {"scheme": (), **of_mup},
        "orthogonal": {"scheme": (Orthogonal(),)},
        "sinusoidal": {"scheme": (Sinusoidal(),)},
        "idinit": {"scheme": (IDInit(),)},
        "mean_shift": {"scheme": (shift,)},
        "zero_out": {"scheme": (ZeroOut(),)},
        "uniform": {"scheme": (UniformAttention(),)},
        "t_fixup": {"scheme": (TFixup(decoder=is_gpt),)},
        "zero": {"scheme": (Zero(),)},
        "dct": {"scheme": (DCT(),)},
        "conditioned": {"scheme": (Conditioned(),)},
        "mimetic": {"scheme": (*before, own)},
        "vision" if is_gpt else "language": {"scheme": (*before, other)},
        "polar": {"scheme": (*before, Polar(own))},
        "mimetic_zero_mlp": {"scheme": (*before, zeros, own)},
        "mimetic_mean_shift": {"scheme": (*before, own, shift)},
        "mimetic_mup": {"scheme": (*before, own), **of_mup},
    }
    if is_gpt:
        found |= {"strong": {"scheme": (STRONG,)}, "strong_mup": {"scheme": (STRONG,), **of_mup}}
    else:
        found |= {"sincos": {"scheme": before}, "impulse": {"scheme": (_IMPULSE,)}}
    return with_noise(found)


BASE_WIDTH = 16
"""Of µP here: at this width its learning rates are those of the default."""


def mup(width: int) -> tuple[tuple[str, float], ...]:
    """Learning rates of µP for Adam: those of hidden kernels fall as 1/D, all others stay.

    Its initial variances of hidden kernels, 1/fan_in, are Flax's own.

    Reference: Tensor Programs V (Yang et al. 2022), table 8, with widths over a base width.
    """
    return ((r"(attention|mlp|token_mixing)/.*kernel$|head/kernel$", BASE_WIDTH / width),)


_SSM = {"a": "decay", "delta": "step", "cb": "correlation", "conv": "noise"}
_PARTS_OF_SSM = [
    "_".join(chosen)
    for count in range(1, len(_SSM) + 1)
    for chosen in itertools.combinations(_SSM, count)
]
"""The parts of `MimeticSSM` that an arm has, such as a_delta."""


def _of_parts(name: str) -> MimeticSSM:
    chosen = name.split("_")
    off: Any = {field: None for part, field in _SSM.items() if part not in chosen}
    return MimeticSSM(**{"noise": 0.0, **off})
