from __future__ import annotations

from mimetic_jax.train.metrics import MetricsFile, write_atomically


def test_append_read_rewind(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    assert metrics.read() == []
    metrics.rewind(0)
    for step in (2, 4, 6):
        metrics.append({"step": step, "loss": step / 10})
    metrics.rewind(4)
    assert [record["step"] for record in metrics.read()] == [2, 4]


def test_a_torn_last_line_is_ignored_and_gone_after_rewind(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.append({"step": 2})
    with metrics.path.open("a") as file:
        file.write('{"step": 4, "lo')
    assert metrics.read() == [{"step": 2}]
    metrics.rewind(10)
    metrics.append({"step": 4})
    assert metrics.read() == [{"step": 2}, {"step": 4}]


def test_atomic_write_leaves_no_draft(tmp_path):
    write_atomically(tmp_path / "x.json", "one")
    write_atomically(tmp_path / "x.json", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text() == "two"
