"""Steps compiled as users compile them, in a process of its own: sums over padding are right.

The suite's own process compiles without most optimizations, see conftest.py, and is blind to what
fusions get wrong. Each case is a step of SGD, compared with the same without XLA's fusions of sums.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.compiled.steps import CASES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WITHOUT_EFFECT = ("['key']['bias']", "['token_mixing']['fc2']['bias']")
"""They move no output, so that their gradients are rounding alone: a softmax cancels the one, which
is the same for all keys, and the norms after it the other, the same for all channels."""


@pytest.fixture(scope="module")
def found():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "tests.compiled.steps", *CASES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_without_fused_sums(found, name):
    tolerance = 3e-2 if "bfloat16" in name else 1e-3
    assert not {
        leaf
        for leaf, difference in found[name].items()
        if difference > tolerance and not leaf.endswith(WITHOUT_EFFECT)
    }
