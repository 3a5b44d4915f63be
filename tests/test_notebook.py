"""docs/first_steps.ipynb: it runs, and is stored without what it printed."""

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


def test_no_output_is_stored() -> None:
    assert [cell["outputs"] for cell in CELLS] == [[]] * len(CELLS)
    assert {cell["execution_count"] for cell in CELLS} == {None}


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
