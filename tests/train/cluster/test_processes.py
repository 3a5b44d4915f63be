"""What several processes agree on; their trainings are in tests/processes."""

import numpy as np
import pytest

from mimetic_jax import InputError
from mimetic_jax.train.cluster import processes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("host:1", None, None, False), "host:1, None and None"),
        ((None, 2, 0, False), "needs all of --coordinator"),
        (("host:1", 2, 2, False), "process_id 2 is not one of 2 processes"),
        (("host:1", 2, 0, True), "not both"),
    ],
)
def test_joining_by_halves(arguments, words):
    with pytest.raises(InputError, match=words):
        processes.join(*arguments)


def test_alone_there_is_nothing_to_agree_on():
    processes.join(None, None, None, False)
    assert processes.is_first()
    assert processes.agreed(True)
    assert not processes.agreed(False)
    processes.wait_for_all("anything")
    processes.check_processes_agree(config={"a": 1})


def test_the_process_that_differs_is_named(monkeypatch):
    def gather(digests):
        others = np.repeat(digests[None], 3, axis=0)
        others[2, 1] += 1
        return others

    monkeypatch.setattr(processes.jax, "process_count", lambda: 3)
    monkeypatch.setattr(processes.multihost_utils, "process_allgather", gather)
    with pytest.raises(InputError, match="the code of process 2 differs from that of process 0"):
        processes.check_processes_agree(config={"a": 1}, code="0.1", data=["digits"])
