"""Counts of a text that are kept: the next run counts nothing, and trusts no damaged file."""

import os

import numpy as np
import pytest

from mimetic_jax import weights
from mimetic_jax.data import cache
from mimetic_jax.data.text import counted
from tests.data.made import damage

TOKENS = np.random.default_rng(0).integers(0, 50, 3000).astype(np.uint16)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The file of the counts of `TOKENS`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = weights.cooccurrence(TOKENS, 60, 3, contexts=20).toarray()
    np.testing.assert_array_equal(counted.cached_counts(TOKENS, 60, 3, 20).toarray(), expected)
    (path,) = (tmp_path / "mimetic_jax").glob("counts_*.npz")
    return path


def test_a_second_run_counts_nothing(kept, monkeypatch, capsys):
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(counted, "half_counts", None)
        again = counted.cached_counts(TOKENS.astype(np.int64), 60, 3, 20)
    expected = weights.cooccurrence(TOKENS, 60, 3, contexts=20)
    np.testing.assert_array_equal(again.toarray(), expected.toarray())
    assert not capsys.readouterr().err
    for other in [(TOKENS[1:], 60, 3, 20), (TOKENS, 61, 3, 20), (TOKENS, 60, 2, 20)]:
        counted.cached_counts(*other)
    assert capsys.readouterr().err.count("counting 3,000 tokens in windows of 3") == 1
    assert len(list(kept.parent.iterdir())) == 4


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("how", ["changed", "cut"])
def test_a_damaged_file_is_reported_and_made_again(kept, capsys, how, share):
    damage(kept, how, share)
    for said in (True, False):
        counts = counted.cached_counts(TOKENS, 60, 3, 20)
        expected = weights.cooccurrence(TOKENS, 60, 3, contexts=20)
        np.testing.assert_array_equal(counts.toarray(), expected.toarray())
        assert (f"{kept} was damaged and is made again" in capsys.readouterr().err) == said


def test_the_files_used_longest_ago_are_dropped(kept, monkeypatch):
    """Also what was left unfinished; never the latest, nor a file of another name."""
    size, folder = kept.stat().st_size, kept.parent
    digest = 32 * "5"
    others = [f"bpe_300_{digest}.npz", f"bpe_300_{digest}.json", "counts_mine.npz", "mine.txt"]
    unfinished = f"{kept.name}.abc123"
    for age, name in enumerate([*others, unfinished]):
        (folder / name).write_bytes(bytes(size))
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    os.utime(kept, (1e9 - 99, 1e9 - 99))
    counted.cached_counts(TOKENS, 60, 3, 20)  # now it is of today
    monkeypatch.setattr(cache, "LIMIT", 2.5 * size)
    counted.cached_counts(TOKENS[::-1], 60, 3, 20)
    names = {path.name for path in folder.iterdir()}
    assert {kept.name, *others[1:]} < names
    assert not names & {others[0], unfinished}
    monkeypatch.setattr(cache, "LIMIT", 1)
    counted.cached_counts(TOKENS[1:], 60, 3, 20)
    left = {path.name for path in folder.iterdir()} - {*others[1:]}
    assert len(left) == 1, "the latest"
    assert not left & names


def test_a_file_that_memory_does_not_hold_is_not_damaged(kept, monkeypatch):
    content = kept.read_bytes()

    def load(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(np, "load", load)
    with pytest.raises(MemoryError):
        counted.cached_counts(TOKENS, 60, 3, 20)
    assert kept.read_bytes() == content
