"""Mistakes on the command line, each one line, without a process of their own."""

import gc
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from configs.default import default
from mimetic_jax import InputError, zoo
from mimetic_jax.command import experiment, shipped
from mimetic_jax.command.assign import parse_seeds, set_field
from mimetic_jax.schemes import Mimetic, SinCos, Zero
from mimetic_jax.train import config as configs
from mimetic_jax.train.cluster import processes
from mimetic_jax.train.schema import leaves
from mimetic_jax.train.settings import check_settings

pytestmark = pytest.mark.usefixtures("own_flags")
ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    "content", [b"", b"def get_config(\n", b"\xff\xfe\x00\x01", b"def get_config(): return 1 / 0\n"]
)
def test_a_file_that_is_no_config_is_named(tmp_path, content):
    (tmp_path / "odd.py").write_bytes(content)
    with pytest.raises(InputError, match=r"config file .*odd\.py can't be read \(\w+: "):
        shipped.load(str(tmp_path / "odd.py"))


def test_fields_of_arms_are_set_by_dotted_names():
    """Those of an arm that exists, and those of a new one."""
    config = shipped.load("digits_vit")
    shared = float(config.optimizer.learning_rate)
    for flag in (
        "--config.arms.mimetic.optimizer.learning_rate=3e-3",
        "--config.arms.fast.optimizer.learning_rate=0.01",
        "--config.arms.fast.model.width=32",
        "--config.arms.other.scheme=SinCos(), Mimetic(beta_qk=.5)",
    ):
        set_field(config, flag)
    arms = configs.arms_of(config)
    rates = {name: arm.optimizer.learning_rate for name, arm in arms.items()}
    assert (rates["mimetic"], rates["fast"], rates["default"]) == (3e-3, 0.01, shared)
    assert (arms["fast"].model.width, tuple(arms["fast"].scheme)) == (32, ())
    assert tuple(arms["other"].scheme) == (SinCos(), Mimetic(beta_qk=0.5))
    assert len(arms["mimetic"].scheme) > 0


def loaded(*words):
    """The configuration of a command line."""
    _, *fields = experiment._parse(["main.py", "--config=configs/digits_vit.py", *words])
    return experiment._configuration(experiment._CONFIG.value, fields)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *(("--lr=1e-3", "--rates"), ("--learning-rate=1e-3", "--rates")),
        *(("--epochs=3", "--config.epochs"), ("--batch_size=8", "--config.batch")),
        *(("--seed=3", "--config.seeds"), ("--datadir=D", "--data-dir"), ("--zzz", "")),
    ],
)
def test_an_unknown_flag_is_told_what_was_meant(given, meant):
    name = given.partition("=")[0].removeprefix("--").replace("-", "_")
    words = (
        rf"^unknown flag --{name}{f'; did you mean {meant}' if meant else ''}[?.] `mimetic train"
    )
    with pytest.raises(InputError, match=words):
        loaded(given)


def test_flags_and_fields_are_read_from_files(tmp_path):
    """Where a file is named, so that what follows counts; files may name others."""
    (tmp_path / "inner").write_text("# comments\n--config.seeds=0-3\n--rates=1e-3\n")
    path = tmp_path / "flags"
    path.write_text(f"--config.batch=16\n--flagfile={tmp_path / 'inner'}\n--workdir=here\n")
    config = loaded("--config.batch=8", f"--flagfile={path}", "--config.seeds=5")
    assert (config.batch, config.seeds, config.rates) == (16, (5,), (1e-3,))
    assert experiment._WORKDIR.value == "here"
    with pytest.raises(InputError, match="missing"):
        loaded(f"--flagfile={tmp_path / 'missing'}")


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--config.optimizer.no_decay=true"], "optimizer.no_decay", True),
        (["--config.optimizer.no_decay"], "optimizer.no_decay", True),
        (["--config.optimizer.no_decay=False"], "optimizer.no_decay", False),
        (["--config.init_parts=attention"], "init_parts", ("attention",)),
        (["--config.init_parts=attention, position"], "init_parts", ("attention", "position")),
        (["--config.init_parts=('attention',)"], "init_parts", ("attention",)),
        (["--config.seeds", "0-3"], "seeds", (0, 1, 2, 3)),
        (["--config.seeds=2-4", "--config.seeds=7"], "seeds", (7,)),
        (["--config.rates=[1e-3, 0.002]"], "rates", (0.001, 0.002)),
        (["-config.batch", "8"], "batch", 8),
        (["--config.data.dir=1=2"], "data.dir", "1=2"),
        (["--config.scheme=Zero"], "scheme", (Zero(),)),
        (["--config.scheme=zero, SinCos"], "scheme", (Zero(), SinCos())),
        (["--config.rules=zoo.MAXTEXT"], "rules", zoo.MAXTEXT),
    ],
)
def test_fields_are_read_from_words(words, field, value):
    assert dict(leaves(loaded(*words)))[field] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config.batch"], "--config.batch has no value"),
        (["--config.batch=many"], "--config.batch must be an integer.*got 'many'$"),
        (["--config.seeds", "3-1"], "--config.seeds=3-1; pass 0-7"),
        (["--config.batch=2.5"], "--config.batch must be an integer.*got 2.5$"),
        (["--config.optimizer.no_decay=2"], "no_decay must be True or False.*got 2"),
        (["--config.optimizer.learning_rate=nan"], "learning_rate must be a number.*got 'nan'"),
        (["--config.model=vit"], "model has fields of its own: write --config.model.name=VALUE"),
        (["--config.arms=1"], "write --config.arms.default.FIELD=VALUE"),
        (["--config.arms.fast.optimizer.learning_rat=1"], "mean 'optimizer.learning_rate'"),
        (["--config.arms.fast=1"], "names no field: write --config.arms.fast.FIELD"),
        (["--config.arms.fast.batch"], "has no value"),
        (["--config.arms.fast.scheme=Mimetik"], "did you mean 'Mimetic'"),
    ],
)
def test_a_field_of_another_form_is_one_line(words, message):
    with pytest.raises(InputError, match=message):
        loaded(*words)


SEEDS = {
    **{"8": (8,), "(5,)": (5,), "(3, 1)": (3, 1), "[0,1]": (0, 1), "4294967295": (2**32 - 1,)},
    **{"2-4": (2, 3, 4), "0-2,7": (0, 1, 2, 7), "range(3)": (0, 1, 2), "range(2, 4)": (2, 3)},
}


def test_one_form_is_as_good_as_another():
    assert {text: parse_seeds("--seeds", text) for text in SEEDS} == SEEDS


@pytest.mark.parametrize(
    "text",
    [
        *("", "0..7", "range(a)", "range(0)", "0:8", "all", "x", "1-", "0,,1", "-1"),
        *("3-1", "0,3-1", "4294967296", "0,4294967296"),
    ],
)
def test_another_form_names_the_right_ones(text):
    words = r"--seeds=.*; pass 0-7, range\(8\) or 0,1,2, .*; 8 is seed 8 alone"
    with pytest.raises(InputError, match=words):
        parse_seeds("--seeds", text)


def test_a_config_that_did_not_start_from_the_default():
    with pytest.raises(InputError, match=r"returns dict$"):
        experiment._check_config({"batch": 3})
    for name in ("task", "name", "model"):
        config = default()
        experiment._check_config(config)
        del config[name]
        with pytest.raises(InputError, match="has no task, name or model: start from"):
            experiment._check_config(config)


@pytest.mark.parametrize("coordinator", ["", ":1", "host:port", "a:123456"])
def test_a_coordinator_of_another_form(coordinator):
    with pytest.raises(InputError, match="is not HOST:PORT"):
        processes.join(coordinator, 2, 1, False)


def test_no_devices_are_one_line(monkeypatch):
    def fails() -> None:
        raise RuntimeError("Unable to initialize backend 'nonsense':\nit is not known")

    monkeypatch.setattr(jax, "devices", fails)
    with pytest.raises(InputError, match=r"JAX has no devices, with .* .nonsense.: it"):
        check_settings()


@pytest.mark.parametrize(
    ("error", "printed"), [("Event loop is closed", False), ("generator didn't stop", True)]
)
def test_what_follows_a_failed_write_is_not_printed(error, printed, capsys, monkeypatch):
    class Ends:
        def __del__(self) -> None:
            raise RuntimeError(error)

    monkeypatch.setattr(sys, "unraisablehook", experiment._unraisable)
    Ends()
    gc.collect()
    assert (error in capsys.readouterr().err) == printed


@pytest.mark.slow
def test_a_terminal_without_greek_gets_escapes(tmp_path):
    """The table has a column Δ."""
    flags = ["--config=configs/digits_vit.py:Δ=1", f"--workdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "main.py", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii:strict"},
    )
    assert done.returncode == 2
    assert "\\u0394" in done.stderr
    assert done.stderr.count("\n") == 1
