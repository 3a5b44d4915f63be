"""Exported weights are those of the checkpoint, by names that the commands on files read."""

import io
import json
import shutil
import sys

import jax
import numpy as np
import pytest
from safetensors import safe_open

from mimetic_jax import InputError, check
from mimetic_jax.base.tensor_files import read_file
from mimetic_jax.command.export import export
from mimetic_jax.command.progress import Progress
from mimetic_jax.rules import paths
from mimetic_jax.train.store.runs import Run
from tests.training import quiet


def test_the_data_may_be_gone(tiny, finished, tmp_path):
    workdir = shutil.copytree(finished, tmp_path / "workdir")
    claim = json.loads((workdir / "config.json").read_text())
    claim["config"]["data"] |= {"name": "folder", "dir": "nowhere"}
    (workdir / "config.json").write_text(json.dumps(claim))
    names = [str(tmp_path / f"{name}.safetensors") for name in ("moved", "there")]
    for folder, name in zip((workdir, finished), names, strict=True):
        export(str(folder), "run", name)
    jax.tree.map(np.testing.assert_array_equal, *map(read_file, names))


def test_the_file_holds_the_checkpoint(tiny, finished, tmp_path):
    file = str(tmp_path / "out.safetensors")
    said = export(str(finished), "run", file)
    state = quiet(tiny()).restored(Run.of(finished, "run", 0))
    expected = dict(paths.flatten(jax.device_get(state.params))[0])
    found = read_file(file)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    assert f"{len(expected)} tensors" in said
    with safe_open(file, "numpy") as stream:
        assert stream.metadata() == {"arm": "run", "seed": "0", "step": str(tiny().steps)}
    assert [layer.name for layer in check(found)] == [layer.name for layer in check(state.params)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "out.npz"), "must end in .safetensors"),
        (("run", "no/out.safetensors"), "there is no folder .*/no$"),
        (("runs", "out.safetensors"), "unknown arm 'runs'; did you mean 'run'. Choose one of run"),
        (("run", "out.safetensors", 7), "unknown seed '7'. Choose one of 0"),
    ],
)
def test_what_isnt_there_is_said(finished, tmp_path, arguments, message):
    for workdir, words in ((finished, message), (tmp_path, f"nothing was trained|{message}")):
        with pytest.raises(InputError, match=words):
            export(str(workdir), *arguments)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_counts_the_steps_of_all_runs(tiny, tmp_path, monkeypatch, capsys, terminal):
    config = tiny()
    config.seeds = (0, 1)
    drawn = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", drawn)
    progress, counted = Progress(), []
    comparison = quiet(
        config,
        progress.say,
        on_metrics=lambda run, line: (progress.moved(run, line), counted.append(line["step"])),
    )
    with progress.of(comparison, tmp_path):
        comparison.train(tmp_path)
    assert counted[-1] == config.steps
    progress.moved(Run.of(tmp_path, "run", 2), {"step": 4})  # of a group that goes on
    assert (f"/{2 * config.steps} " in drawn.getvalue()) == terminal
    assert "run 2 of 2, run seed 1: done" in capsys.readouterr().out
    with progress.of(comparison, tmp_path):  # continued: all is done
        pass
    assert (f" {2 * config.steps}/{2 * config.steps} " in drawn.getvalue()) == terminal
    assert json.loads((tmp_path / "summary.json").read_text())
