"""Targets by name, and what is missing for them."""

from __future__ import annotations

import importlib.metadata

import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis.compile.target import Target


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v5f:4x4", "unknown target 'v5f': choose one of a100, h100, h200, v5e, v5p, v6e; did you"),
        ("v5e", "TPU v5e is a torus of 2 axes, such as v5e:2x4"),
        ("v5p:4x4", "TPU v5p is a torus of 3 axes, such as v5p:2x2x4"),
        ("v6e:4by4", "'4by4' is no topology such as 4x4"),
        ("v6e:32x16", "a pod of TPU v6e has 256 chips"),
        ("h200:16", "a node has 8 GPUs; give GPUS, or NODESxGPUS"),
    ],
)
def test_bad_names(name, words):
    with pytest.raises(InputError, match=words):
        Target.of(name)


@pytest.mark.parametrize(
    ("name", "versions", "words"),
    [
        ("v5e:2x2", {}, r'needs libtpu: pip install "jax\[tpu\]=='),
        ("v5e:2x2", {"libtpu": "0.0.2"}, r"libtpu 0\.0\.2 is older than 0\.0\.\d+, which jax asks"),
        ("h200", {}, r'needs jax-cuda12-plugin: pip install "jax\[cuda12\]=='),
        (
            "h200",
            {"jax-cuda12-plugin": "0.4.1", "jaxlib": "0.10.2"},
            r"jax-cuda12-plugin 0\.4\.1 doesn't match jaxlib 0\.10\.2: pip install",
        ),
    ],
)
def test_compilers_that_are_missing(monkeypatch, name, versions, words):
    def version(package):
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(InputError, match=words):
        Target.of(name).devices()
