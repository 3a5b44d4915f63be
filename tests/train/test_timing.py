import threading

from mimetic_jax.train.timing import StallReport


def test_says_what_it_waits_for_and_for_how_long():
    said, twice = [], threading.Event()

    def say(line):
        said.append(line)
        if len(said) == 2:
            twice.set()

    report = StallReport(0.05, say)
    report.now("waiting for data")
    assert twice.wait(30)
    report.close()
    assert said[:2] == [
        "nothing has happened for 0 s: waiting for data",
        "nothing has happened for 0 s: waiting for data",
    ]


def test_zero_is_never():
    before = threading.active_count()
    report = StallReport(0, print)
    report.now("waiting")
    assert threading.active_count() == before
    report.close()
