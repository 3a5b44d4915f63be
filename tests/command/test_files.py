"""Files of weights that other programs wrote, read back by the safetensors library."""

import json
import pathlib
import re
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from mimetic_jax import InputError, Rule, mlp_rules, rewrite, schemes, zoo
from mimetic_jax.base.tensor_files import mapped
from mimetic_jax.command import files
from mimetic_jax.command.expressions import parse_rules, parse_scheme
from mimetic_jax.schemes import Mimetic, NormMatched, SinCos, mimetic_language
from mimetic_jax.weights import cooccurrence, following, sincos_2d

D, H = 32, 4
DEEP = b"[" * 100_000
FLAGS = (f"--heads={H}", "--seed=3")


def timm(dtype=np.float32):
    """A ViT by timm's names."""
    random = np.random.default_rng(0)
    shapes = {"pos_embed": (1, 17, D), "head.weight": (5, D)}
    for block in ("blocks.0", "blocks.1"):
        shapes |= {f"{block}.attn.qkv.weight": (3 * D, D), f"{block}.attn.qkv.bias": (3 * D,)}
        shapes |= {f"{block}.attn.proj.weight": (D, D), f"{block}.mlp.fc1.weight": (4 * D, D)}
    return {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def rewritten(weights):
    """As `FLAGS` say."""
    return rewrite(jax.random.key(3), weights, Mimetic(), num_heads=H)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "in.safetensors"
    save_file(timm(), path, metadata={"format": "pt"})
    return path


def test_trained_weights_are_overwritten_only_if_asked_for(tmp_path):
    """What Mimetic has drawn is as far from noise as what training leaves."""
    file, out = tmp_path / "trained.safetensors", tmp_path / "out.safetensors"
    save_file(rewritten(timm()), file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"looks trained: 10 of 10 products of its attention are"):
        files.rewrite_file([str(file), str(out), *FLAGS])
    assert not out.exists()
    files.rewrite_file([str(file), str(out), *FLAGS, "--overwrite-trained"])
    assert out.exists()


def test_attention_that_cannot_be_judged_is_overwritten_only_if_asked_for(tmp_path):
    """As a trained file with one number that isn't finite."""
    file, out = tmp_path / "trained.safetensors", tmp_path / "out.safetensors"
    weights = rewritten(timm())
    weights["blocks.1.attn.qkv.weight"][0, 0] = np.nan
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"not finite; so nothing says that it isn't trained"):
        files.rewrite_file([str(file), str(out), *FLAGS])
    assert not out.exists()
    files.rewrite_file([str(file), str(out), *FLAGS, "--overwrite-trained"])
    assert out.exists()


def test_what_appears_meanwhile_is_left_alone(saved, tmp_path, monkeypatch):
    out, rewrite_in_place = tmp_path / "out.safetensors", files.rewrite_in_place

    def write(*arguments, **options):
        rewrite_in_place(*arguments, **options)
        out.write_text("of another process")

    monkeypatch.setattr(files, "rewrite_in_place", write)
    with pytest.raises(InputError, match=f"{out} appeared meanwhile; pass a new name"):
        files.rewrite_file([str(saved), str(out), *FLAGS])
    assert out.read_text() == "of another process"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.safetensors", out.name]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
def test_a_rewritten_file_is_the_rewritten_tree(tmp_path, capsys, dtype):
    before = timm(dtype)
    path, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file(before, path, metadata={"format": "pt"})
    given = path.read_bytes()
    files.rewrite_file([str(path), str(out), *FLAGS])
    assert path.read_bytes() == given
    assert set(tmp_path.iterdir()) == {path, out}
    after = load_file(out)
    for name, array in rewritten(before).items():
        assert after[name].dtype == dtype
        np.testing.assert_array_equal(after[name], array, err_msg=name)
    with safe_open(out, "numpy") as file:
        assert file.metadata() == {"format": "pt"}
    for block in ("blocks.0", "blocks.1"):
        _, _, value = np.split(after[f"{block}.attn.qkv.weight"].astype(np.float64), 3)
        product = value.T @ after[f"{block}.attn.proj.weight"].astype(np.float64).T
        assert product.diagonal().mean() == pytest.approx(-0.4, abs=0.05)
    printed = capsys.readouterr().out
    assert "rules: zoo.TIMM" in printed
    assert f"{out}:\nlayer" in printed
    assert "W_V W_out aligned with +I in 0, with -I in 2 of 2 layers" in printed


def test_a_checkpoint_in_several_files(tmp_path):
    weights = timm()
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    names = {name: f"part-{'proj' in name}.safetensors" for name in weights}
    for part in sorted(set(names.values())):
        save_file({name: weights[name] for name in names if names[name] == part}, folder / part)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    files.rewrite_file([str(index), str(out), *FLAGS])
    expected = rewritten(weights)
    assert (out / index.name).read_text() == index.read_text()
    for name, part in names.items():
        np.testing.assert_array_equal(load_file(out / part)[name], expected[name], err_msg=name)


def test_names_in_an_npz_may_be_arguments_of_numpy(tmp_path):
    path, out = tmp_path / "in.npz", tmp_path / "out.npz"
    extra = {"file": np.arange(3.0), "allow_pickle": np.arange(4), "a/b": np.ones((2, 3))}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in (timm() | extra).items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
    files.rewrite_file([str(path), str(out), *FLAGS])
    with np.load(out) as after:
        assert set(after) == timm().keys() | extra.keys()
        for name, array in (rewritten(timm()) | extra).items():
            np.testing.assert_array_equal(after[name], array)


def test_errors_give_the_rules(tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, **timm())
    with pytest.raises(InputError, match=r"flattened: pass num_heads$"):
        files.check_file([str(path)])
    random, roles = np.random.default_rng(0), ("q", "k", "v", "out")
    names = {f"{name}_lin.weight": random.normal(size=(D, D)) for name in roles}
    np.savez(path, **{f"mixing.{name}": array for name, array in names.items()})
    with pytest.raises(InputError, match=r"pass rules=attention_rules\(.*\), num_heads=…") as said:
        files.rewrite_file([str(path), str(tmp_path / "out.npz")])
    call = re.search(r"rules=.*?\)", str(said.value))[0]
    files.rewrite_file([str(path), str(tmp_path / "out.npz"), f"--{call}", *FLAGS])


def test_schemes_that_write_no_attention(tmp_path, capsys):
    path, out = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(path, **{"block_0/depthwise/kernel": np.ones((5, 5, 1, 8), np.float32)})
    files.rewrite_file([str(path), str(out), "--scheme=ConvMimetic"])
    assert capsys.readouterr().out.endswith(f"{out}:\n")
    with np.load(out) as after:
        assert (after["block_0/depthwise/kernel"] != 1).any()


def test_positions_of_a_grid_that_is_not_square(tmp_path):
    path, out = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(path, **timm() | {"pos_embed": np.zeros((1, 8, D), np.float32)})
    command = [str(path), str(out), "--scheme=SinCos", FLAGS[0]]
    with pytest.raises(InputError, match=r"Pass grid=.*, pass the part of the tree"):
        files.rewrite_file(command)
    files.rewrite_file([*command, "--grid=2x4"])
    with np.load(out) as after:
        np.testing.assert_allclose(after["pos_embed"][0], sincos_2d(2, 4, D), rtol=1e-6)


def test_nothing_is_read_before_it_is_used(saved):
    for array in mapped(saved).values():
        base = array
        while not isinstance(base, np.memmap):
            base = base.base
        assert not base.flags.writeable


def test_check_and_fit(saved, tmp_path, capsys):
    files.check_file([str(saved), f"--num_heads={H}"])
    assert "with +I in 0, with -I in 0 of 2 layers" in capsys.readouterr().out
    out = tmp_path / "out.safetensors"
    files.rewrite_file([str(saved), str(out), *FLAGS])
    capsys.readouterr()
    scheme, again = tmp_path / "fit.json", tmp_path / "again.safetensors"
    files.fit_file([str(out), FLAGS[0], f"--out={scheme}"])
    assert "Mimetic(alpha_qk=Interpolated(values=(" in capsys.readouterr().out
    files.rewrite_file([str(saved), str(again), *FLAGS, f"--scheme={scheme}"])
    files.check_file([str(again), FLAGS[0]])
    assert "W_V W_out aligned with +I in 0, with -I in 2 of 2 layers" in capsys.readouterr().out


def test_a_dry_run_writes_nothing(saved, tmp_path, capsys):
    files.rewrite_file([str(saved), str(tmp_path / "out.safetensors"), *FLAGS, "--dry-run"])
    assert "blocks.#.attn.proj.weight" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [saved]


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_rules, "LLAMA", zoo.LLAMA),
        (parse_rules, "maxtext", zoo.MAXTEXT),
        (parse_rules, "(*zoo.BIG_VISION, *zoo.GEMMA)", (*zoo.BIG_VISION, *zoo.GEMMA)),
        (parse_rules, "Rule('x', 'out', 'h k d'), VIT", (Rule("x", "out", "h k d"), *zoo.VIT)),
        (parse_rules, "mlp_rules", mlp_rules()),
        (parse_scheme, "Mimetic", Mimetic()),
        (parse_scheme, "norm_matched(mimetic)", NormMatched(Mimetic())),
        (parse_scheme, "mimetic_language", mimetic_language()),
        (parse_scheme, "mimetic_language(beta_vo=-0.4)", mimetic_language(beta_vo=-0.4)),
        (parse_scheme, "NormMatched(Mimetic(alpha_qk=0.2))", NormMatched(Mimetic(alpha_qk=0.2))),
        (parse_scheme, "SinCos(), Mimetic()", (SinCos(), Mimetic())),
        (parse_scheme, "Mimetic(beta_qk=(0.1, 0.2))", Mimetic(beta_qk=(0.1, 0.2))),
    ],
)
def test_rules_and_schemes_by_their_expressions(parse, text, expected):
    assert parse(text) == expected


def test_rules_keep_the_name_of_their_family():
    assert zoo.name_of(parse_rules("LLAMA")) == "LLAMA"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["IN", "OUT", "--heads=5"], "num_heads 5 does not divide axis"),
        (["IN", "IN", "--heads=4"], "in.safetensors exists; pass a new name"),
        (["nothing.safetensors", "OUT"], "no such file: nothing.safetensors"),
        (["IN", "nowhere/out.safetensors", "--heads=4"], "there is no folder"),
        (["IN", "/proc/out.safetensors", "--heads=4"], "nothing can be written into /proc"),
        (["IN", "OUT", "--heads=4", "--rules="], "--rules=: no expression that can be read"),
        (["IN", "OUT", "--scheme=Mimetik"], "unknown scheme 'Mimetik'.*did you mean 'Mimetic'"),
        (["IN", "OUT", "--scheme=Mimetic(beta=1)"], "unknown field of Mimetic 'beta'"),
        (["IN", "OUT", "--scheme=Mimetic(**{'beta_qk': 0.5})"], "neither a name nor a call of one"),
        (["IN", "OUT", "--scheme=Mimetic(*(0.5, 0.6))"], "neither a name nor a call of one"),
        (["IN", "OUT", "--scheme=json:dumps(), pickle:dumps()"], "a scheme of the same name"),
        (["IN", "OUT", "--scheme=__import__('os')"], "unknown scheme '__import__'"),
        (["IN", "OUT", "--scheme=()"], r"--scheme='\(\)' has no scheme: OUT would be a copy of IN"),
        (["IN", "OUT", "--rules=LLAMMA"], "unknown rules 'LLAMMA'.*did you mean 'LLAMA'"),
        (["IN", "OUT", "--heads=4", "--scheme=SinCos", "--grid=5x5"], "grid"),
        (["IN", "OUT", "--heads=4", "--tokens=no.npy"], "--tokens no.npy is for Cooccurrence, Un"),
        (["pyproject.toml", "OUT"], "pyproject.toml is not a .safetensors file"),
        (["nothing.pt", "OUT"], "no such file: nothing.pt"),
        (["PT", "OUT"], "state.pt is a pickle as torch.save .*save_file, or load it"),
        (["TAR", "OUT"], "a.pth.tar is a pickle"),
        (["BIN_INDEX", "OUT"], "model.bin.index.json is a pickle"),
        (["DEEP", "OUT"], "deep.safetensors is not a complete safetensors file"),
        (["IN", "out.npz", "--heads=4"], r"out.npz is a copy of .*; pass a name that ends in .saf"),
        (["INDEX", "OUT"], "index.json can't be read as an index"),
        (["OUTSIDE", "OUT"], "which isn't a file beside it"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(saved, tmp_path, arguments, words):
    places = {"IN": saved, "OUT": tmp_path / "out.safetensors"}
    contents = {
        "DEEP": ("deep.safetensors", len(DEEP).to_bytes(8, "little") + DEEP),
        "INDEX": ("broken.index.json", b"{}"),
        "PT": ("state.pt", b""),
        "TAR": ("a.pth.tar", b""),
        "BIN_INDEX": ("pytorch_model.bin.index.json", b"{}"),
        "OUTSIDE": ("outside.index.json", b'{"weight_map": {"a": "../in.safetensors"}}'),
    }
    for name, (file, content) in contents.items():
        places[name] = tmp_path / file
        places[name].write_bytes(content)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    given = [str(places.get(argument, argument)) for argument in arguments]
    with pytest.raises(InputError, match=words) as refused:
        files.rewrite_file(given)
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        (files.check_file, ["--png=a.jpg"], "--png a.jpg: the file's name must end in .png"),
        (files.check_file, ["--png="], "--png is empty; pass a path"),
        (files.check_file, ["--rotary-share=.5"], "--rotary-share and --rotary-pairs go with"),
        (files.fit_file, ["--out=none/a.json"], "--out none/a.json: there is no folder .*/none$"),
        (files.fit_file, ["--rotary-pairs=halves"], "--rotary-share and --rotary-pairs go with"),
    ],
)
def test_flags_are_used_or_refused(saved, capsys, command, flags, words):
    with pytest.raises(InputError, match=words):
        command([str(saved), "--heads=4", *flags])
    assert capsys.readouterr().out == ""  # before the work


def test_a_grid_is_of_positions(saved, tmp_path):
    tensors = {k: v for k, v in files.read(str(saved)).items() if k != "pos_embed"}
    np.savez(tmp_path / "in.npz", **tensors)
    flags = [str(tmp_path / name) for name in ("in.npz", "out.npz")]
    for scheme, words in (("Mimetic", r"no scheme of \(Mimetic\) uses grid"), ("SinCos", "SinCos")):
        with pytest.raises(InputError, match=words):
            files.rewrite_file([*flags, "--heads=4", "--grid=4x4", f"--scheme={scheme}"])


def test_a_failure_in_the_middle_leaves_no_file(saved, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "rewrite_in_place", fails)
    with pytest.raises(KeyboardInterrupt):
        files.rewrite_file([str(saved), str(tmp_path / "out.safetensors"), *FLAGS])
    assert [path.name for path in pathlib.Path(tmp_path).iterdir()] == ["in.safetensors"]


def test_embeddings_from_the_tokens_of_a_file(tmp_path, capsys):
    random, V = np.random.default_rng(0), 40
    name = "model.embed_tokens.weight"
    weights = {name: random.normal(size=(V, D)), **{f"h.{n}": np.ones((2, 2)) for n in "ab"}}
    path, tokens = tmp_path / "in.npz", random.integers(0, V - 3, 500)
    np.savez(path, **weights)
    expected = None
    for at, file in enumerate(("train.npy", "train.bin")):
        if file.endswith(".npy"):
            np.save(tmp_path / file, tokens)
        else:
            tokens.astype(np.uint16).tofile(tmp_path / file)
        out = tmp_path / f"{at}.npz"
        flags = ["--scheme=Cooccurrence(window=2)", "--rules=LLAMA", "--seed=3"]
        files.rewrite_file([str(path), str(out), *flags, f"--tokens={tmp_path / file}"])
        if expected is None:
            counts = cooccurrence(tokens, V, window=2)
            options = {"rules": zoo.LLAMA, "counts": counts}
            expected = rewrite(jax.random.key(3), weights, schemes.Cooccurrence(2), **options)
        np.testing.assert_allclose(np.load(out)[name], expected[name], atol=1e-6)
    said = capsys.readouterr()
    assert "embedding  (40, 32)  t d" in said.out
    assert said.err.count("counting 500 tokens in windows of 2") == 1, "the second file is the same"
    assert f"{counts.nnz:,} counts of {tmp_path}/train.bin; their decomposition" in said.out
    whole = {
        **{f"model.layers.0.self_attn.{x}_proj.weight": (D, D) for x in "qkvo"},
        **{f"model.layers.0.mlp.{x}_proj.weight": (2 * D, D) for x in ("gate", "up")},
        **{"model.layers.0.mlp.down_proj.weight": (D, 2 * D), "model.norm.weight": (D,)},
        **{f"model.layers.0.{x}_layernorm.weight": (D,) for x in ("input", "post_attention")},
        **{name: (V, D), "lm_head.weight": (V, D)},
    }
    whole = {name: random.normal(size=shape) for name, shape in whole.items()}
    np.savez(path, **whole)
    flags = ["--scheme=Cooccurrence(), Bigram()", "--heads=4", f"--tokens={tmp_path}/train.npy"]
    files.rewrite_file([str(path), str(tmp_path / "bigram.npz"), *flags, "--overwrite-trained"])
    both = (schemes.Cooccurrence(), schemes.Bigram())
    options = {"counts": cooccurrence(tokens, V), "following": following(tokens, V), "num_heads": 4}
    expected = rewrite(jax.random.key(0), whole, both, **options)["lm_head.weight"]
    np.testing.assert_allclose(np.load(tmp_path / "bigram.npz")["lm_head.weight"], expected)
    np.savez(path, **{name: weights[name][:36]})
    flags = ["--scheme=Cooccurrence(window=2)", "--rules=LLAMA", "--seed=3"]
    with pytest.raises(InputError, match=r"train\.npy has the token id 36: allowed are 0 to 35"):
        files.rewrite_file(
            [str(path), str(tmp_path / "no.npz"), *flags, f"--tokens={out.parent}/train.npy"]
        )
