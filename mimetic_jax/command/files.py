"""Files of weights: `mimetic rewrite`, `check` and `fit` on what any program has saved."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import pathlib
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import jax
import numpy as np

from mimetic_jax import schemes, zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.tensor_files import checkpoint_files, mapped, read_file
from mimetic_jax.base.typed import SEED, converted
from mimetic_jax.command.expressions import parse_rules, parse_scheme
from mimetic_jax.command.outputs import check_output
from mimetic_jax.data.paths import check_exists
from mimetic_jax.data.text.counted import cached_counts
from mimetic_jax.data.text.token_files import token_ids
from mimetic_jax.schemes import PositionalHeads, as_tuple
from mimetic_jax.schemes.base import inside, used_by
from mimetic_jax.schemes.first_layer import counted_for
from mimetic_jax.trained.check import check
from mimetic_jax.trained.fit import fit
from mimetic_jax.trained.positional import Turning
from mimetic_jax.tree.label import label
from mimetic_jax.tree.layers import views
from mimetic_jax.tree.rewrite import blocks, plan, rewrite_in_place
from mimetic_jax.tree.tree import Tree
from mimetic_jax.weights.counts import following
from mimetic_jax.weights.rotary import Rotary
from mimetic_jax.zoo.model_config import ModelConfig

_FILES = "a .safetensors file, the .index.json of several, or a .npz file"
_INDEX = ".index.json"
_PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_SHOWN_BY_CHECK = {"query", "query_bias", "value"}


def rewrite_parser() -> argparse.ArgumentParser:
    """Return the arguments of `mimetic rewrite`."""
    parser = _parser("rewrite", rewrite_file.__doc__)
    parser.add_argument(
        "out", metavar="OUT", help="a new file of the same kind; a new folder for an .index.json"
    )
    parser.add_argument(
        "--scheme",
        default="Mimetic",
        help="a name, a call such as 'SinCos(), Mimetic(beta_qk=0.5)', an import path such as "
        "'mine:Tied()', or a .json file of `mimetic fit` (default: %(default)s)",
    )
    parser.add_argument(
        "--grid",
        type=_grid,
        metavar="HxW",
        help="rows and columns of patches, if the position embedding isn't a square grid",
    )
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="the training text as token ids, .npy or .bin of nanoGPT, llm.c and modded-nanogpt: "
        "for Cooccurrence, Unigram and Bigram",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="integer ≥ 0 (default: %(default)s)"
    )
    parser.add_argument(
        "--overwrite-trained",
        action="store_true",
        help="rewrite even if the weights look trained (this discards the training)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, write nothing")
    return parser


def rewrite_file(argv: Sequence[str]) -> None:
    """Copy a weight file with a scheme applied; all other bytes stay."""
    options, given = _parsed(rewrite_parser(), argv)
    scheme = parse_scheme(options.scheme)
    if not as_tuple(scheme):
        raise InputError(f"--scheme={options.scheme!r} has no scheme: OUT would be a copy of IN")
    key = jax.random.key(converted("--seed", Annotated[int, SEED], options.seed))
    if not options.dry_run:
        _check_new(options.file, options.out)
    tensors = read(options.file)
    config = _config_of(options.file, tensors, given)
    heads = [part for part in inside(as_tuple(scheme)) if isinstance(part, PositionalHeads)]
    for positional in heads:
        positional.check_config(config)
    if config.others:
        print(f"config.json has {', '.join(config.others)}: no scheme counts them")
    described: dict[str, Any] = dict(given)
    given["grid"] = options.grid
    how = counted_for(as_tuple(scheme))
    pairs = "following" in used_by(as_tuple(scheme))
    if options.tokens:
        if not (how or pairs):
            raise InputError(
                f"--tokens {options.tokens} is for Cooccurrence, Unigram and Bigram alone"
            )
        tokens, vocab = _tokens(options.tokens, tensors, described)
        if how:
            given["counts"] = counts = cached_counts(tokens, vocab, *how)
            print(f"{counts.nnz:,} counts of {options.tokens}; their decomposition is next")
        if pairs:
            given["following"] = following(tokens, vocab)
    planned = plan(tensors, scheme, **given)
    print(planned, flush=True)
    if options.dry_run:
        return
    if not options.overwrite_trained:
        _check_fresh(options.file, tensors, described)
    with _beside(options.out) as unfinished, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the plan has said it
        _write(options.file, unfinished, key, scheme, given)
    out = options.out
    if options.file.endswith(_INDEX):
        out = os.path.join(out, os.path.basename(options.file))
    print(f"{options.out}:", flush=True)
    if _SHOWN_BY_CHECK & {write.role for write in planned}:
        rotary = heads[-1].rotary if heads else None
        print(check(read(out), rotary=rotary, **described))


def _check_fresh(file: str, tensors: Mapping[str, Any], described: Mapping[str, Any]) -> None:
    """Raise InputError if a file's attention isn't random, as that of trained weights isn't.

    A file without attention is not judged; one whose attention can't be judged raises InputError.
    """
    kernels = {"query", "key", "value", "out"}
    if not any(kernels & block.keys() for *_, block in blocks(tensors, **described)):
        return
    try:
        outside, products = check(tensors, **described).outside_of_noise()
    except InputError as error:
        raise InputError(
            f"{file}: {error}; so nothing says that it isn't trained, and a scheme erases what "
            "training found; --overwrite-trained does it anyway"
        ) from error
    if outside > products / 10:
        raise InputError(
            f"{file} looks trained: {outside} of {products} products of its attention are outside "
            "of what noise does. A scheme is for fresh weights and erases what training found; "
            "--overwrite-trained does it anyway"
        )


def check_parser() -> argparse.ArgumentParser:
    """Return the arguments of `mimetic check`."""
    parser = _parser("check", check_file.__doc__)
    parser.add_argument(
        "--bare",
        action="store_true",
        help="the kernels alone, without the norm scale before and the LayerScale after a layer",
    )
    parser.add_argument(
        "--png",
        metavar="FILE.png",
        help="draw the alignments by depth, rings for the kernels alone; with rotary positions, "
        "the offsets of the heads",
    )
    _add_rotary(parser)
    return parser


def check_file(argv: Sequence[str]) -> None:
    """Print how closely the products of each layer are aligned with the identity."""
    options, given = _parsed(check_parser(), argv)
    check_output("--png", options.png, ".png")
    tensors, rotary = _trained(options, given)
    report = check(tensors, effective=not options.bare, rotary=rotary, **given)
    print(report)
    if options.png and report.positional:
        report.plot_heads().savefig(options.png, dpi=150)
    elif options.png:
        folded = any(layer.folded for layer in report)
        bare = check(tensors, effective=False, **given) if folded else None
        report.plot(bare).savefig(options.png, dpi=150)


def fit_parser() -> argparse.ArgumentParser:
    """Return the arguments of `mimetic fit`."""
    parser = _parser("fit", fit_file.__doc__)
    parser.add_argument(
        "--out",
        metavar="FILE.json",
        help="write the schemes, for `mimetic rewrite --scheme=FILE.json` and `schemes.load`",
    )
    _add_rotary(parser)
    return parser


def fit_file(argv: Sequence[str]) -> None:
    """Print the schemes whose constants are closest to the weights of a file."""
    options, given = _parsed(fit_parser(), argv)
    check_output("--out", options.out, ".json")
    tensors, rotary = _trained(options, given)
    fitted = fit(tensors, rotary=rotary, **given)
    print(fitted)
    if options.out:
        schemes.save(options.out, fitted.schemes)


def read(path: str) -> Mapping[str, np.ndarray]:
    """Return the tensors of a file by name; a memory map if the file allows it."""
    if not os.path.exists(path):
        raise InputError(f"no such file: {path}")
    if path.removesuffix(_INDEX).endswith(_PICKLED):
        raise InputError(
            f"{path} is a pickle as torch.save writes it, which may run code when it is read: save "
            "the state dict by safetensors.torch.save_file, or load it into its module and call "
            "mimetic_jax.torch.initialize(module, key, scheme)"
        )
    if path.endswith((".npz", ".safetensors", _INDEX)):
        return read_file(path)
    raise InputError(f"{path} is not {_FILES}")


def _config_of(file: str, tensors: Mapping[str, np.ndarray], given: dict[str, Any]) -> ModelConfig:
    """Hugging Face's config.json beside a file, which adds to `given` what the flags don't say.

    An empty one if there is none, or one of another library, which has no model_type. Rules that
    are given by hand say what a configuration of an unknown type doesn't.

    Raises:
        InputError: if the flags or the sizes of the tensors are others than it says.
    """
    path = os.path.join(os.path.dirname(file), "config.json")
    if not os.path.isfile(path):
        return ModelConfig()
    config = ModelConfig.of(path)
    if not config.model_type:
        print(f"{path} has no model_type, as those of other libraries: it is not read")
        return ModelConfig()
    if by_hand := given["rules"] is not None:
        given["rules"] = zoo.with_config(given["rules"], config)
    else:
        given["rules"] = zoo.rules_of_config(tensors, config)
    if config.sides and given["num_heads"]:
        heads = " and ".join(f"{count} in the {side}" for side, count in config.sides.items())
        raise InputError(
            f"num_heads is {given['num_heads']}, but {path} says {heads}: leave --heads out"
        )
    counts = {"num_heads": config.num_heads, "num_kv_heads": config.num_kv_heads}
    for name, count in counts.items():
        if not by_hand and None not in (count, given[name]) and count != given[name]:
            raise InputError(f"{name} is {given[name]}, but {path} says {count}")
    given |= {name: given[name] or count for name, count in counts.items()}
    if not by_hand and (config.num_heads or config.sides):
        _check_sizes(file, label(tensors, **given), config)
    return ModelConfig() if by_hand and config.unknown else config


def _check_sizes(file: str, tree: Tree, config: ModelConfig) -> None:
    """Raise InputError if a file has other sizes, or fewer layers, than its configuration says."""
    layers = 0
    for path, _, block in views(tree, read_only=True):
        sizes = [
            (role, name, stated, block.shapes[role][axis])
            for role, axis, name, stated in (
                ("query", 0, "hidden_size", config.width),
                ("query", 2, "head_dim", config.head_dim),
                ("key", 2, "head_dim", config.head_dim),
                ("mlp_in", 1, "intermediate_size", config.hidden),
                ("embedding", 0, "vocab_size", config.vocab),
                ("embedding", 1, "hidden_size", config.embedded or config.width),
            )
            if role in block.shapes
        ]
        for role, name, stated, size in sizes:
            padded = name == "vocab_size" and size >= (stated or 0)
            if stated not in (None, size) and not padded:
                raise _not_whole(file, f"{name} {stated}", f"{role} in {path or 'it'} has {size}")
        layers += "query" in block
    if config.num_layers and layers < config.num_layers:
        raise _not_whole(file, f"{config.num_layers} layers", f"it has attention in {layers}")


def _not_whole(file: str, stated: str, found: str) -> InputError:
    return InputError(
        f"config.json beside {file} says {stated}, but {found}: it is a slice or a shard of a "
        "checkpoint, or pruned, and only whole ones can be read; with --rules and --heads by hand "
        "nothing is compared"
    )


def _write(file: str, out: str, key: jax.Array, scheme: Any, given: Mapping[str, Any]) -> None:
    """Write OUT, of which nothing is there yet."""
    copies = {file: out}
    if file.endswith(_INDEX):
        os.mkdir(out)
        copies = {
            part: os.path.join(out, os.path.basename(part)) for part in checkpoint_files(file)
        }
        out = shutil.copyfile(file, os.path.join(out, os.path.basename(file)))
    if file.endswith(".npz"):
        arrays = dict(read(file))
        rewrite_in_place(key, arrays, scheme, **given)
        # Unlike np.savez, for which some names are its own arguments.
        with zipfile.ZipFile(out, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    else:
        for part, copy in copies.items():
            shutil.copyfile(part, copy)
        rewrite_in_place(key, mapped(out, "r+"), scheme, **given)


def _check_new(file: str, out: str) -> None:
    """Raise InputError unless OUT is free and has the name of a file like the one that is read."""
    if os.path.lexists(out):
        raise InputError(f"{out} exists; pass a new name")
    check_output("OUT", out)
    kind = next((suffix for suffix in (".npz", ".safetensors") if file.endswith(suffix)), "")
    if not out.endswith(kind):
        raise InputError(f"{out} is a copy of {file}; pass a name that ends in {kind}")


@contextlib.contextmanager
def _beside(out: str) -> Iterator[str]:
    """A name beside OUT, whose content becomes OUT when all of it is written."""
    folder = os.path.dirname(os.path.abspath(out))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".mimetic-") as hidden:
        unfinished = os.path.join(hidden, os.path.basename(out))
        yield unfinished
        try:  # a rename would replace what appeared meanwhile
            os.mkdir(out) if os.path.isdir(unfinished) else open(out, "xb").close()
        except FileExistsError:
            raise InputError(f"{out} appeared meanwhile; pass a new name") from None
        os.replace(unfinished, out)


def _parser(command: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"mimetic {command}", description=description)
    parser.add_argument("file", metavar="FILE", help=_FILES)
    # The other names are those of `rewrite` in Python.
    parser.add_argument(
        "--heads",
        "--num_heads",
        "--num-heads",
        type=int,
        metavar="N",
        help="number of query heads (default: config.json beside the file)",
    )
    parser.add_argument(
        "--kv-heads",
        "--num_kv_heads",
        "--num-kv-heads",
        type=int,
        metavar="N",
        help="number of key/value heads, if they are fewer (default: as --heads)",
    )
    parser.add_argument(
        "--rules",
        help="how to interpret the tensors if their names are not recognized: a family such as "
        "LLAMA, or the call that an error prints (default: the family that fits)",
    )
    return parser


def _parsed(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, dict[str, Any]]:
    options = parser.parse_args(argv)
    rules = None if options.rules is None else parse_rules(options.rules)
    return options, {"num_heads": options.heads, "num_kv_heads": options.kv_heads, "rules": rules}


def _add_rotary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rotary-base",
        type=float,
        metavar="BASE",
        help="base of rotary positions: read at which offset each head attends (default: "
        "config.json beside the file)",
    )
    parser.add_argument(
        "--rotary-share",
        type=float,
        metavar="SHARE",
        help="share of a head's columns that rotate, in (0, 1] (default: 1)",
    )
    parser.add_argument(
        "--rotary-pairs",
        metavar="PAIRS",
        help="halves or neighbors: columns that rotate together (default: halves)",
    )


def _trained(
    options: argparse.Namespace, given: dict[str, Any]
) -> tuple[Mapping[str, Any], Turning | None]:
    """The tensors and the rotary positions of a file that is only read.

    What the flags don't say, and a config.json beside it does, is added to `given`.
    """
    turning = {"turned": options.rotary_share, "pairs": options.rotary_pairs}
    turning = {name: value for name, value in turning.items() if value is not None}
    if turning and options.rotary_base is None:
        raise InputError("--rotary-share and --rotary-pairs go with --rotary-base alone")
    tensors = read(options.file)
    config = _config_of(options.file, tensors, given)
    stated = config.rotary
    left_out = [*config.others]
    if options.rotary_base is not None and len(stated) > 1:
        left_out.append(f"local and global layers with other bases ({config.bases})")
    if left_out:
        print(f"config.json has {', '.join(left_out)}: no distance and no S counts them")
    if options.rotary_base is not None:
        return tensors, Rotary(options.rotary_base, **turning)
    if not stated or config.others:
        return tensors, None
    if len(stated) == 1:
        return tensors, stated[0]
    attention = [block for _, _, block in blocks(tensors, **given) if "query" in block]
    return tensors, list(itertools.islice(itertools.cycle(stated), len(attention)))


def _tokens(
    file: str, tensors: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[np.ndarray, int]:
    """The tokens of a file, and the vocabulary that the tensors have."""
    path = check_exists(pathlib.Path(file))
    shapes = [block.shapes for _, _, block in blocks(tensors, **given)]
    vocab = next((roles["embedding"][0] for roles in shapes if "embedding" in roles), 0)
    tokens = token_ids(path, vocab)
    # Without an embedding the scheme says what is missing.
    return tokens, vocab or int(tokens.max()) + 1


def _grid(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a grid such as 14x14")
    return int(match[1]), int(match[2])
