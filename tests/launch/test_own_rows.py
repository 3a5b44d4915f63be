"""Rows of one's own config file: from the command line to a table, here or on Slurm."""

import pathlib
import re
import subprocess

import pytest

from launch import reproduce, slurm
from mimetic_jax.base.errors import InputError
from mimetic_jax.train.store.places import Place

ROOT = pathlib.Path(__file__).parents[2]
DIGITS = "configs/digits_vit.py"
ROWS = ("width=16,depth=1,heads=2,steps=8", "width=32,depth=1,heads=2,steps=8")


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def command(workdir: pathlib.Path | str, *more: str) -> list[str]:
    """Both rows, one arm and seed, by the queue."""
    rows = [f"--row={row}" for row in ROWS]
    return [DIGITS, *rows, f"--workdir={workdir}", "--arms=default", "--seeds=0", *more]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--launcher=--nodes=2"], "--launcher"),
        (["--to=slurm", "--launcher=--account='a"], "No closing quotation"),
        (["--row=widht=1"], "did you mean 'width'"),
        ([f"--row={ROWS[0]}"], "rows must be different"),
        (["--", "--config.seeds=(1,)"], "--seeds"),
        (["--", "--config.btach=3"], "did you mean 'batch'"),
        (["--", "--config.batch"], "--config.batch has no value: write --config.batch="),
    ],
)
def test_the_command_line_reports_mistakes_in_one_line(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        reproduce.main(command(tmp_path / "x", *arguments))
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [("def\n", r"can't be read \(SyntaxError"), (None, "no config file 'none.py'")],
)
def test_a_config_file_that_cannot_be_read(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], text: str | None, words: str
) -> None:
    path = tmp_path / "broken.py" if text else pathlib.Path("none.py")
    if text:
        path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        reproduce.main([str(path), f"--workdir={tmp_path / 'x'}"])
    assert re.search(words, capsys.readouterr().err)


def test_a_slurm_dry_run_prints_call_and_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = tmp_path / "x"
    options = ["--to=slurm", "--dry-run", "--launcher=--gpus=1 --account='a b'"]
    assert reproduce.main(command(workdir, *options)) == 0
    call, comment, *lines = capsys.readouterr().out.splitlines()
    (path,) = re.findall(rf"{workdir}/jobs_[0-9a-f]{{8}}\.tsv", call)
    assert call == f"sbatch --array=0-1 --gpus=1 '--account=a b' launch/slurm.sbatch {path}"
    assert comment == f"# contents of {path}:"
    assert [line.split("\t")[-1] for line in lines] == ["--only=default/0"] * 2
    assert not workdir.exists()


def test_the_file_of_an_array_stays_as_it_was_submitted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "sent\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    calls = [("--config.name=a b", f"--only=a/{seed}") for seed in range(2)]
    for some in (calls[:1], calls):
        assert slurm.submit(some, Place.of(str(tmp_path / "new")), "") == "sent"
    texts = [pathlib.Path(command[-1]).read_text() for command in commands]
    assert texts[0] == "--config.name=a b\t--only=a/0\n"
    assert texts[1] == texts[0] + "--config.name=a b\t--only=a/1\n"


@pytest.mark.parametrize(
    ("flag", "folder", "words"),
    [("--config.name=a\tb", "logs", "has a tab"), ("--x=1", "gs://bucket/x", "needs a folder")],
)
def test_what_an_array_cannot_hold(flag: str, folder: str, words: str) -> None:
    if "://" in folder:
        pytest.importorskip("gcsfs")
    with pytest.raises(InputError, match=words):
        slurm.submit([(flag,)], Place.of(folder), "", dry_run=True)


# With main.py


@pytest.mark.slow
def test_rows_of_ones_own_from_calls_to_a_table(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling is most of their time
    call = [DIGITS, f"--row={ROWS[0]}", f"--workdir={tmp_path}", "--arms=default,mimetic"]
    call += ["--seeds=0"]
    assert reproduce.main(call) == 0
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert len(re.findall(r"\(1\)", text)) == 2
    (workdir,) = tmp_path.glob("digits_vit*")
    trained = sorted(str(path.relative_to(workdir / "runs")) for path in workdir.glob("runs/*/*"))
    assert trained == ["default/0", "mimetic/0"]
    assert reproduce.main(call) == 0
    assert "starts" not in capsys.readouterr().out
