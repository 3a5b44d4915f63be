"""docs/first_steps.ipynb: it runs, and is stored with what it printed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
CELLS = [
    cell
    for cell in json.loads((ROOT / "docs/first_steps.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
]
CODE = "\n".join(f"# cell {i}\n{''.join(cell['source'])}" for i, cell in enumerate(CELLS))


def test_outputs_are_those_of_one_execution() -> None:
    """Of all cells in their order, without an error or the paths of a machine."""
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    outputs = [output for cell in CELLS for output in cell["outputs"]]
    assert "error" not in {output["output_type"] for output in outputs}
    text = json.dumps(outputs)
    assert "/home/" not in text
    assert "/tmp" not in text
    assert text.count("| mimetic ") == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_cells_run_one_after_the_other(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "cells.py"  # a file, since its model is found by the name of its module
    script.write_text(CODE)
    environment = {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| mimetic ") == 2, "a table for Linen and one for NNX"
