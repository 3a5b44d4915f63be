"""Schemes and rules on a command line: expressions of names and numbers, never run as code."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections.abc import Mapping
from typing import Any

from mimetic_jax import schemes, zoo
from mimetic_jax.base.errors import InputError, error_text, unknown
from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import attention_rules, embedding_rules, llama_rules, mlp_rules
from mimetic_jax.schemes import Scheme
from mimetic_jax.schemes.base import REGISTRY, as_tuple


def parse_scheme(text: str) -> Scheme | tuple[Scheme, ...]:
    """Return the scheme of an expression; case and underscores don't matter.

    >>> parse_scheme("NormMatched(Mimetic(beta_qk=0.5))").like.beta_qk
    0.5

    It is the name of a scheme, a call with its fields, or several with commas between; or the name
    of a JSON file of schemes. A scheme of one's own has its import path: "mine:Tied(rho=0.5)".
    """
    if text.endswith(".json"):
        return schemes.load(text)
    places = dict.fromkeys(re.findall(_IMPORT_PATH, text))
    own = {name: _imported(module, name) for module, name in places}
    if len(own) < len(places):
        raise InputError(f"two modules of {text!r} have a scheme of the same name; rename one")
    others = {"Interpolated": schemes.Interpolated, "mimetic_language": schemes.mimetic_language}
    scheme = _read("scheme", re.sub(_IMPORT_PATH, r"\2", text), REGISTRY | others | own)
    as_tuple(scheme)
    return scheme


_IMPORT_PATH = r"\b([A-Za-z_][\w.]*):([A-Za-z_]\w*)"


def _imported(module: str, name: str) -> Any:
    """A scheme, its class, or a function that returns one, from a module of the user's."""
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise InputError(
            f"scheme {module}:{name} can't be imported: {error_text(error)}"
        ) from error


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of an expression, as errors and docs write it.

    >>> [rule.path for rule in parse_rules('mlp_rules(exclude="")')]
    ['fc1/kernel', 'fc1/bias', 'fc2/kernel', 'fc2/bias']

    It is a family of `mimetic_jax.zoo`, a call of attention_rules, llama_rules or Rule; or
    several with commas between.
    """
    given = _read("rules", text, _RULES)
    several = given if isinstance(given, tuple) else (given,)
    rules = [
        rule for entry in several for rule in (entry if isinstance(entry, tuple) else (entry,))
    ]
    if not all(isinstance(rule, Rule) for rule in rules):
        raise InputError(f"rules {text[:200]}: not all of these are rules")
    return tuple(rules)


def _read(flag: str, text: str, known: Mapping[str, Any]) -> Any:
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, flag, known)
    except InputError:
        raise
    except _OtherError:
        reason = "neither a name nor a call of one"
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        reason = "no expression that can be read"
    except TypeError as error:  # of a call that the class or function doesn't take
        reason = str(error)
    raise InputError(f"--{flag}={text[:200]}: {reason}")


class _OtherError(Exception):
    """An expression of another kind."""


def _value(node: ast.expr, flag: str, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Starred):
        return _value(node.value, flag, known)
    with contextlib.suppress(ValueError):
        return ast.literal_eval(node)
    if isinstance(node, ast.Tuple):
        return tuple(_value(element, flag, known) for element in node.elts)
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    name = _name(call.func)
    match = {_plain(candidate): candidate for candidate in known}.get(_plain(name))
    if match is None:
        raise unknown(flag, name, known)
    if not callable(known[match]) and call is not node:
        return known[match]
    if any(isinstance(x, ast.Starred) for x in call.args) or None in [x.arg for x in call.keywords]:
        raise _OtherError
    values = [_value(value, flag, known) for value in call.args]
    fields = {str(field.arg): _value(field.value, flag, known) for field in call.keywords}
    return known[match](*values, **fields)


def _name(node: ast.expr) -> str:
    """The name, without the module that an error message may put before it."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr
    if not isinstance(node, ast.Name):
        raise _OtherError
    return node.id


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_MAKERS = (attention_rules, mlp_rules, embedding_rules, llama_rules, Rule)
_RULES = {**zoo.TABLES, **{maker.__name__: maker for maker in _MAKERS}}
