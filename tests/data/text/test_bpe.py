"""Byte pairs: the text comes back, learned on its training part alone, and kept whole or not."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mimetic_jax.data.text import bpe
from mimetic_jax.data.text.corpus import describe, load_text
from tests.data.made import damage, refused, write

tokenizers = pytest.importorskip("tokenizers")

TRAIN = "def f(x):\n    return x + 1\n\n\n# äöü 日本 \U0001f600\ndef g(x):\n    return f(x)\n" * 20
TEXTS = (TRAIN, "def h(y):\n\treturn 'ünseen' \n\n \n", "  \n\nf(g(3))\n")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mimetic_jax"


def splits(corpus):
    return corpus.train, corpus.valid, corpus.test


def tokenizer_of(cache: Path):
    (path,) = cache.glob("*.json")
    return tokenizers.Tokenizer.from_file(str(path))


def test_tokens_are_those_of_the_tokenizer_that_is_kept(cache, monkeypatch):
    """Of each text as a whole, though it is encoded in pieces; and they decode to the text."""
    monkeypatch.setattr(bpe, "_PIECE", 5)
    corpus = bpe.encoded("a", TEXTS, 280)
    kept = tokenizer_of(cache)
    for text, tokens in zip(TEXTS, splits(corpus), strict=True):
        assert tokens.tolist() == kept.encode(text).ids
        assert kept.decode(tokens.tolist()) == text
        first = len(corpus.vocabulary[tokens[0]])
        assert corpus.scored_bytes(tokens) == len(text.encode()) - first
    assert len(corpus.vocabulary) == 280 == kept.get_vocab_size()
    assert corpus.vocabulary == tuple(map(kept.id_to_token, range(280)))
    assert f"tokenizer {next(cache.glob('*.json'))}" == corpus.notes


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="ab1.' \t\n\r\x1c\x85\u2028é", max_size=200))
def test_words_end_where_a_text_is_cut(text):
    rules = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe, "_PIECE", 3)
        cut = list(bpe.pieces(text))
    assert "".join(cut) == text
    words = [word for piece in cut for word, _ in rules.pre_tokenize_str(piece)]
    assert words == [word for word, _ in rules.pre_tokenize_str(text)]


def test_it_learns_of_the_training_text_alone(cache):
    vocabularies = [bpe.encoded("a", (TRAIN, more, more), 300).vocabulary for more in TEXTS[1:]]
    assert vocabularies[0] == vocabularies[1]
    assert len(list(cache.glob("*.npz"))) == 2  # each text has its own tokens


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("how", ["changed", "cut"])
def test_a_damaged_cache_is_made_again(cache, how, share):
    right = bpe.encoded("a", TEXTS, 280)
    (path,) = cache.glob("*.npz")
    damage(path, how, share)
    for tokenizer in cache.glob("*.json"):
        tokenizer.write_text("{}")
    for said in (True, False):
        corpus = bpe.encoded("a", TEXTS, 280)
        assert corpus.fingerprint() == right.fingerprint()
        assert (f"{path} was damaged and is made again" in corpus.notes) == said
    assert tokenizer_of(cache).get_vocab_size() == 280


def test_words_without_end_are_cut(cache, monkeypatch):
    """So that learning stays linear: the same as of a text that has ends there, and it decodes."""
    letters = "".join(np.random.default_rng(0).choice(list("ACGTä"), 4 * bpe.LONGEST))
    corpus = bpe.encoded("a", (letters, "b\n", "c\n"), 270)
    kept = tokenizer_of(cache)
    assert corpus.train.tolist() == kept.encode(letters).ids
    assert kept.decode(corpus.train.tolist()) == letters
    words = [letters[start : start + bpe.LONGEST] for start in range(0, len(letters), bpe.LONGEST)]
    pieces = [kept.encode(word).ids for word in words]
    assert corpus.train.tolist() == [token for piece in pieces for token in piece]
    monkeypatch.setattr(bpe, "_LONG", rf"\S{{{bpe.LONGEST + 1}}}")
    short = bpe.encoded("a", ("\n".join(words), "b\n", "c\n"), 270)
    assert short.vocabulary == corpus.vocabulary


def test_without_a_cache_it_is_learned_again(tmp_path, monkeypatch):
    right = bpe.encoded("a", TEXTS, 280)
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path, {"file": "x"}) / "file"))
    corpus = bpe.encoded("a", TEXTS, 280)
    assert (corpus.fingerprint(), corpus.notes) == (right.fingerprint(), "")


def test_vocabularies_that_a_text_does_not_fill(tmp_path):
    corpus = bpe.encoded("a", ("ab ab\n", "b\n", "a\n"), 5000)
    assert len(corpus.vocabulary) == 257  # and "ab"
    assert "257 tokens of 5,000: no other pair occurs twice" in corpus.notes
    write(tmp_path, {"a.py": TRAIN})
    path = str(tmp_path / "a.py")
    refused(lambda: load_text("text_bpe", path, 255), "vocabulary 255 is less than the 256 bytes")
    refused(lambda: load_text("text_word", path, 300), "data.vocabulary 300 is of text_bpe and")
    refused(lambda: load_text("ptb_word", path, 300), "ptb_word has its own")


def test_the_size_of_a_text_in_bytes(tmp_path):
    write(tmp_path, {f"{n}.py": f"# {n}\n{TRAIN}" for n in range(4)})
    info = describe("text_bpe", str(tmp_path), vocabulary=280)
    corpus = load_text("text_bpe", str(tmp_path), 280)
    assert info.level == "bpe"
    assert info.vocabulary == len(corpus.vocabulary) == 280
    firsts = sum(len(corpus.vocabulary[tokens[0]]) for tokens in (corpus.valid, corpus.test))
    trained = sum(len(corpus.vocabulary[token]) for token in corpus.train)
    whole = 4 * len(f"# 0\n{TRAIN}".encode())
    assert info.valid_bytes + info.test_bytes + firsts + trained == whole
    assert not math.isclose(info.valid_bytes, info.num_valid)
