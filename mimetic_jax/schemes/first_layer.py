"""Schemes for the first layer, from the data that a model will be trained on."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from mimetic_jax import weights
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.typed import COUNT
from mimetic_jax.schemes.base import Scheme, inside
from mimetic_jax.schemes.block import Block, Context, check_not_zero
from mimetic_jax.schemes.network import Network
from mimetic_jax.weights.checks import POSITIVE
from mimetic_jax.weights.counts import CONTEXTS, SMOOTHING, WINDOW, check_covers
from mimetic_jax.weights.patches import SHARE, square

_CONSTANT = 1e-6
"""How far entries of a constant channel differ by rounding, of the largest."""
_NO_CHANNEL = (
    "Unigram needs a bias of the output layer or a channel of the embedding that is the same for "
    "all tokens, and finds neither. Pass (PositionalHeads(base, channel=0, sharpness=0), "
    "Unigram()): it makes such a channel."
)
_ZERO_GAIN = (
    "the scale of the norm before the output layer is all zeros. If the model adds 1 to it, add "
    "Rule(path, 'tied_gain', 'd', form='1 + w') in front of the rules."
)
_LASTING = 0.25
"""The best σ of those that were tried, 0.0625, 0.25 and 1: docs/first_layer.md."""


@dataclasses.dataclass(frozen=True)
class Cooccurrence(Scheme):
    """Token embeddings from the co-occurrence counts of the training text.

    Rows of U S^½ from an SVD of the text's positive pointwise mutual information, randomly rotated:
    see `weights.from_counts`. Tokens that the text lacks keep their rows, at the size of the
    others. Pass the counts to `rewrite`, as `counts=weights.cooccurrence(tokens, vocab)`; the
    trainer counts its training split. An untied output layer stays as it is.

    With a σ of its own, what depends on the embedding's scale goes along: a table of positions that
    are added is multiplied by σ over the old one, if it is a parameter; and where the output layer
    is the embedding, the gain of the norm before it is divided by that, so that logits are as large
    as before.

    Before `PositionalHeads` with a constant channel, which turns the rows into that channel's
    complement: (Cooccurrence(), PositionalHeads(base, channel=0)).

    Attributes:
        window: w, the largest distance of a pair, if the scheme has its text counted: by the
            trainer or by `mimetic rewrite --tokens`.
        smoothing: a, the power of the neighbors' frequencies.
        contexts: the number of most frequent tokens whose counts are used; likewise.
        std: σ, the root mean square of the embedding as it is stored, whatever the model multiplies
            it by; None keeps that of the one it replaces. Under Adam structure of this size lasts
            about σ / rate steps of a token; 0.25 was the best that was tried.

    Raises:
        InputError: if a field is out of its range, if there are no counts, counts of another
            number of tokens or without information, or if the embedding is all zeros.

    Example:
        >>> from mimetic_jax import rewrite
        >>> counts = weights.cooccurrence([0, 1, 0, 2, 0, 1], vocab=3, window=1)
        >>> params = {"embed": {"embedding": jnp.ones((3, 2))}}
        >>> new = rewrite(jax.random.key(0), params, Cooccurrence(), counts=counts)
        >>> print(f"{jnp.sqrt(jnp.mean(jnp.square(new['embed']['embedding']))):.1f}")
        1.0

    Reference: the law is Levy and Goldberg's (2014), and trained language models have it:
    docs/trained.md. Who else starts there: docs/first_layer.md.
    """

    uses = frozenset({"counts"})
    window: Annotated[int, WINDOW] = 5
    smoothing: Annotated[float, SMOOTHING] = 0.75
    contexts: Annotated[int, COUNT] = CONTEXTS
    std: Annotated[float, POSITIVE] | None = None

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        if "embedding" not in roles or self.std is None:
            return roles & {"embedding"}
        return roles & {"embedding", "position", "tied_gain"}

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        if self.std is not None and not present & {"unembedding", "tied_gain"}:
            raise InputError(
                f"Cooccurrence(std={self.std:g}) rescales the embedding, so it needs the output "
                "layer. If the output layer is the embedding, add Rule(path, 'tied_gain', 'd') for "
                "the norm before it. If it is separate, add Rule(path, 'unembedding', 't d')."
            )
        if self.std is not None and (apart := present & {"tied_gain", "position"} - written):
            raise InputError(
                f"Cooccurrence(std={self.std:g}) rescales the {min(apart)} beside the embedding, "
                "and a rule finds one in another module. Let the paths of both rules begin at the "
                "same module, or leave it out by Rule(path, ())."
            )

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        base, counts = block["embedding"], _counts(self, context)
        if self.std is None or len(self.writes(frozenset(block))) > 1:
            check_not_zero(
                base,
                "the embedding is all zeros, so Cooccurrence has no size to keep. Initialize it "
                "first.",
            )
        std = None if self.std is None else self.std * block.multipliers.get("embedding", 1.0)
        rows = weights.from_counts(
            key,
            counts,
            base.shape[1],
            smoothing=self.smoothing,
            contexts=self.contexts,
            std=std,
            base=base,
        )
        drawn = {"embedding": rows}
        if std is not None:
            ratio = std / jnp.sqrt(jnp.mean(jnp.square(base)))
            for role in self.writes(frozenset(block)) - {"embedding"}:
                if role == "tied_gain":
                    check_not_zero(block[role], _ZERO_GAIN)
                drawn[role] = block[role] * (ratio if role == "position" else 1 / ratio)
        return drawn

    def note(self, block: Block, context: Context) -> str:
        size = jnp.sqrt(jnp.mean(jnp.square(block["embedding"])))
        size /= block.multipliers.get("embedding", 1.0)
        if self.std is not None or isinstance(size, jax.core.Tracer) or size >= _LASTING:
            return ""
        return (
            f"Cooccurrence keeps the embedding's σ of {size:.2g}. Adam changes an entry by about "
            f"the rate per visit, so larger rows last longer: std={_LASTING:g} gained more"
        )


@dataclasses.dataclass(frozen=True)
class Unigram(Scheme):
    """A language model starts with the logits log p, p the frequency of each token of its text.

    The first steps of training then don't go into the frequencies of tokens. It is the baseline of
    `Cooccurrence`, and goes with it: (Unigram(), Cooccurrence()). It takes the same counts.

    *With a bias* of the output layer this becomes log p.

    *Without* (Llama, Qwen and Mistral of some billions of parameters, GPT-NeoX), an output layer
    that isn't the embedding reads log p from the channel c of the embedding that is the same for
    all tokens, as `PositionalHeads` makes one,

        W_out[c] = log p / m_c,

    m_c the mean of the channel after the last norm, which random tokens without positions show.
    One channel serves heads and log p: (Cooccurrence(std=0.25), PositionalHeads(base, channel=0),
    Unigram()); sharpness=0 makes the channel alone. `Permuted` has log p of other tokens.

    Raises:
        InputError: if there are no counts, or counts of another number of tokens; if the output
            layer has no bias, and no channel of the embedding is constant.

    Example:
        >>> counts = weights.cooccurrence([0, 0, 0, 1, 0, 0, 0, 1], vocab=2, window=1)
        >>> block = Block.of({"unembedding_bias": jnp.zeros(2)})
        >>> new = Unigram()(jax.random.key(0), block, Context(counts=counts))
        >>> bool(new["unembedding_bias"][0] > new["unembedding_bias"][1])
        True

    Reference: A Natural Bias for Language Generation Models (Meister et al. 2022, arXiv
    2212.09686).
    """

    uses = frozenset({"counts"})
    partial = True
    own_controls = frozenset({"Permuted"})
    needs = (
        "a bias of the output layer (Rule(path, 'unembedding_bias', 't') for one of another name), "
        "or an output layer that isn't the embedding. Where it is the embedding and has no bias, "
        "Cooccurrence(std=0.25) does without Unigram()"
    )

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"unembedding_bias"} or roles & {"unembedding"}

    def undone_by(self, written: frozenset[str], later: frozenset[str]) -> frozenset[str]:
        """Return the output layer and the embedding, of which it reads a channel."""
        return later & {"embedding", "unembedding"} if "unembedding" in written else frozenset()

    def instead(self, later: frozenset[str]) -> str:
        channel = "(Cooccurrence(…), PositionalHeads(base, channel=0, sharpness=0), Unigram())"
        return "" if "unembedding" in later else channel

    def check_tree(self, present: frozenset[str], written: frozenset[str]) -> None:
        if {"unembedding", "unembedding_bias"} <= written:
            raise InputError(
                "Unigram finds the output layer's bias in another module than its kernel. Let the "
                "paths of both rules begin at the same module."
            )

    def survey(self, network: Callable[[], Network], written: frozenset[str]) -> Any:
        """c and m_c, if log p goes into the output layer's kernel."""
        if "unembedding" not in written:
            return None
        decoder = network()
        rows = decoder.embedding["embedding"]
        sizes = jnp.abs(rows).max(axis=0)
        spread = jnp.where(sizes > 0, jnp.ptp(rows, axis=0), jnp.inf) / jnp.where(
            sizes > 0, sizes, 1
        )
        channel = jnp.argmin(spread)
        if not isinstance(spread, jax.core.Tracer) and spread[channel] > _CONSTANT:
            raise InputError(_NO_CHANNEL)
        return {"channel": channel, "mean": decoder.read_by_output()[:, channel].mean()}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        del key  # nothing here is random
        return self._drawn(block, context, lambda frequencies: frequencies)

    def controlled(
        self, kind: str, key: jax.Array, block: Block, context: Context
    ) -> dict[str, jax.Array]:
        return self._drawn(block, context, functools.partial(jax.random.permutation, key))

    def _drawn(
        self, block: Block, context: Context, change: Callable[[jax.Array], jax.Array]
    ) -> dict[str, jax.Array]:
        frequencies = weights.log_frequency(_counts(self, context))
        (role,) = self.writes(frozenset(block))
        check_covers(frequencies, block.shapes[role][0], "the output layer", weights.cooccurrence)
        log_p = change(jnp.asarray(frequencies))
        if role == "unembedding":
            if (constant := context.surveyed) is None:
                raise InputError(_NO_CHANNEL)
            log_p = block[role].at[:, constant["channel"]].set(log_p / constant["mean"])
        return {role: log_p}


@dataclasses.dataclass(frozen=True)
class Bigram(Scheme):
    """A language model starts with a bigram model's logits, at half their size.

    The output layer, which isn't the embedding, becomes

        W_out = s Gᵀ,  G = (EᵀWE)⁻¹ EᵀW A,  A_ij = log(1 + C_ij / (κ p_j)) − aᵢ,

    the least-squares prediction of the next token from the embedding's rows E, as the norm before
    the output layer makes them: see `weights.next_token`. The embedding is read, so its own
    scheme comes before: (Unigram(), Cooccurrence(std=0.25), Bigram()). Log p through a constant
    channel comes after. Pass `following=weights.following(tokens, vocab)` to `rewrite`; the trainer
    counts its training split.

    Attributes:
        scale: s. Layers between embedding and output add to what is read.
        smoothing: κ, of how many pairs the frequencies of tokens are worth.

    Its controls: `Permuted` gives the columns of G to other tokens.

    Raises:
        InputError: if a field is out of its range, if there are no counts, or counts of another
            number of tokens; if the tree isn't one decoder, or no rule describes its last norm.

    Example:
        >>> Bigram().writes(frozenset({"embedding", "unembedding"}))
        frozenset({'unembedding'})

    Reference: ours: docs/first_layer.md.
    """

    uses = frozenset({"following"})
    own_controls = frozenset({"Permuted"})
    needs = "an output layer that isn't the embedding"
    scale: Annotated[float, POSITIVE] = 0.5
    smoothing: Annotated[float, POSITIVE] = 100.0

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"unembedding"}

    def undone_by(self, written: frozenset[str], later: frozenset[str]) -> frozenset[str]:
        """Return the embedding; log p goes into one channel of the output layer."""
        return later & {"embedding"}

    def survey(self, network: Callable[[], Network], written: frozenset[str]) -> Any:
        """E."""
        return {"rows": network().embedding_as_read()}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        del key  # nothing here is random
        if context.following is None:
            raise InputError(
                "Bigram needs counts of next tokens. Pass "
                "following=mimetic_jax.weights.following(tokens, vocab), or --tokens=FILE on the "
                "command line."
            )
        if context.surveyed is None:
            raise InputError("Bigram reads the embedding of a whole model: pass it to rewrite")
        rows = context.surveyed["rows"]
        solved = weights.next_token(context.following, rows, smoothing=self.smoothing)
        return {"unembedding": self.scale * solved}

    def controlled(
        self, kind: str, key: jax.Array, block: Block, context: Context
    ) -> dict[str, jax.Array]:
        ((role, kernel),) = self.draw(key, block, context).items()
        return {role: jax.random.permutation(key, kernel)}


@dataclasses.dataclass(frozen=True)
class Whitened(Scheme):
    """A patch embedding that whitens a share of the components of patches, at the kernel's norm.

    V diag(g) Q, g = λ^-½ / (1 + (λ_c / λ)²), λ and V the variances and directions of the principal
    components of patches, Q random: see `weights.whitened`. Of the outputs those components have
    equal variances that vary much more than λ_c; one of λ_c has a fourth of it. Patches are those
    of the images that the model will be trained on, as it gets them, normalized, given to `rewrite`
    as `covariance=weights.patch_covariance(images, patch)`; the trainer takes those of its training
    images. Without them, those of natural images, of `weights.natural_covariance`: a plan says
    which.

    Attributes:
        share: of the components, those that vary at least as much as λ_c. 1 whitens all: λ_c = 0.

    Raises:
        InputError: if a field is out of its range, if patches are not squares and no covariance is
            passed, or one of another size, or if the kernel is all zeros.

    Example:
        >>> block = Block.of({"patch": jnp.ones((2, 2, 3, 8))})
        >>> kernel = Whitened()(jax.random.key(0), block, Context())["patch"]
        >>> print(f"{jnp.linalg.norm(kernel) / jnp.linalg.norm(block['patch']):.2f}")
        1.00

    Reference: the law is Atick and Redlich's (1992), and trained vision transformers have it:
    docs/trained.md. Who else starts there: docs/first_layer.md.
    """

    uses = frozenset({"covariance"})
    share: Annotated[float, SHARE] = 0.2

    def note(self, block: Block, context: Context) -> str:
        which = "all" if self.share == 1 else f"a share of {self.share:g} of the"
        if context.covariance is not None:
            return f"Whitened whitens {which} components of the covariance that is given"
        rows, columns, channels, _ = block.shapes["patch"]
        return (
            f"Whitened whitens {which} components of patches of {rows} x {columns} x {channels} of "
            "natural images; pass covariance=weights.patch_covariance(images, patch), of images as "
            "the model gets them, normalized, for those of your images"
        )

    def writes(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & {"patch"}

    def draw(self, key: jax.Array, block: Block, context: Context) -> dict[str, jax.Array]:
        *pixels, channels, dim = block.shapes["patch"]
        if context.covariance is not None:
            covariance = square(context.covariance)
        elif pixels[0] == pixels[1]:
            covariance = weights.natural_covariance(pixels[0], channels)
        else:
            raise InputError(
                "the built-in spectrum of natural images has square patches; got "
                f"{pixels[0]} x {pixels[1]} pixels. Pass "
                "covariance=weights.patch_covariance(images, patch)."
            )
        if len(covariance) != math.prod(pixels) * channels:
            raise InputError(
                f"a covariance of {len(covariance)} numbers, but patches of "
                f"{pixels[0]} x {pixels[1]} x {channels}"
            )
        patch = block["patch"]
        check_not_zero(
            patch,
            "the patch kernel is all zeros, so Whitened has no norm to keep. Initialize it first.",
        )
        kernel = weights.whitened(key, covariance, dim, share=self.share)
        norm = jnp.linalg.norm(patch.ravel()) / jnp.linalg.norm(kernel.ravel())
        return {"patch": (norm * kernel).reshape(block.shapes["patch"])}


def counted_for(schemes: Iterable[Scheme]) -> tuple[int, int] | None:
    """Return the window and the contexts with which schemes have tokens counted; None without
    counts.

    >>> counted_for([Unigram(), Cooccurrence(2)])
    (2, 8192)

    Raises:
        InputError: if windows differ.
    """
    taking = [part for part in inside(schemes) if isinstance(part, Cooccurrence | Unigram)]
    laws = [part for part in taking if isinstance(part, Cooccurrence)]
    windows = {part.window for part in laws}
    if len(windows) > 1:
        raise InputError(
            f"These schemes count in different windows, {sorted(windows)}. Use one window in all."
        )
    # Frequencies are the same in any window.
    contexts = max([CONTEXTS, *(part.contexts for part in laws)])
    return (next(iter(windows), 1), contexts) if taking else None


def _counts(scheme: Scheme, context: Context) -> Any:
    if context.counts is None:
        raise InputError(
            f"{type(scheme).__name__} needs co-occurrence counts. Pass "
            "counts=mimetic_jax.weights.cooccurrence(tokens, vocab), or --tokens=FILE on the "
            "command line."
        )
    return context.counts
