"""Rows of one's own config file: from the command line to a table."""

import pathlib
import re

import pytest

from launch import reproduce

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
        (["--share=8/8"], "--share=8/8 is not a share such as 0/8 or 7/8"),
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


def test_a_dry_run_lists_what_is_left_and_writes_nothing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce.main(command(tmp_path / "x", "--dry-run", "--share=1/2")) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"digits_vit:{ROWS[1]}, default seed 0"
    assert said[-1] == "no finished run yet"
    assert not (tmp_path / "x").exists()


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
