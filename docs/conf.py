"""The site of the documentation: `make docs` builds it in site/."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pathlib
import re
import sys
import tempfile
import zlib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mimetic_jax.base.version import __version__
from mimetic_jax.schemes import PerLayer
from mimetic_jax.zoo import FAMILIES

project = "mimetic_jax"
author = "The mimetic_jax developers"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
root_doc = "index"
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["_build"]

# Docstrings write `rewrite`, as Markdown does: a link if it is a name of this site, else code.
default_role = "py:obj"
add_module_names = False
python_maximum_signature_line_length = 80
autosummary_generate = False  # pages are written by hand, one per topic
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_rtype = False
napoleon_use_admonition_for_examples = False

nb_execution_mode = "off"  # the notebook is committed with its outputs
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Without a network the second location is taken, an inventory of nothing: names of other libraries
# are then code instead of links, and the build has no warnings.
_NOTHING = pathlib.Path(tempfile.mkdtemp()) / "objects.inv"
_NOTHING.write_bytes(
    b"# Sphinx inventory version 2\n# Project: none\n# Version: 0\n"
    b"# The remainder of this file is compressed using zlib.\n" + zlib.compress(b"")
)
intersphinx_mapping = {
    name: (address, (None, str(_NOTHING)))
    for name, address in {
        "python": "https://docs.python.org/3/",
        "jax": "https://docs.jax.dev/en/latest/",
        "flax": "https://flax.readthedocs.io/en/stable/",
        "numpy": "https://numpy.org/doc/stable/",
        "optax": "https://optax.readthedocs.io/en/stable/",
    }.items()
}
intersphinx_timeout = 5

html_theme = "sphinx_book_theme"
html_title = "mimetic_jax"
html_theme_options = {"show_toc_level": 2, "use_download_button": False}

_ADDRESSES = {
    "Mimetic Initialization of Self-Attention Layers": "https://arxiv.org/abs/2305.09828",
    "Structured Initialization for Vision Transformers": "https://arxiv.org/abs/2505.19985",
    "Mimetic Initialization of MLPs": "https://arxiv.org/abs/2602.07156",
}
_RETURNED = ("mimetic_jax.trained.", "mimetic_jax.tree.", "mimetic_jax.train.")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Reference):", re.MULTILINE)
_NUMBER = re.compile(r"\barXiv[: ](\d{4}\.\d{5})")


def _described(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make a docstring reStructuredText: it is plain text with `code`, formulas and examples."""
    text = "\n".join(lines)
    if dataclasses.is_dataclass(obj) and not name.startswith(_RETURNED):
        text = re.sub("^Attributes:", "Args:", text, flags=re.MULTILINE)  # it is called with them
    for title, address in _ADDRESSES.items():
        words = r"\s+".join(map(re.escape, title.split()))
        text = re.sub(words, f"`{title} <{address}>`__", text)
    text = _NUMBER.sub(r"`arXiv \1 <https://arxiv.org/abs/\1>`__", text)
    paragraphs = text.split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        if paragraph.lstrip().startswith(">>>"):
            continue
        if i and paragraph.startswith("    ") and not _SECTION.search(paragraphs[i - 1]):
            paragraphs[i] = f"::\n\n{paragraph}"  # deeper than the text above: a formula
            continue
        paragraphs[i] = _escaped(paragraph)
    family = FAMILIES.get(name.rpartition(".")[2])
    if note := family and family.note:
        paragraphs.append(f"`plan` prints the note: {note}.")
    lines[:] = "\n\n".join(paragraphs).split("\n")


class _Annotation:
    """An annotation as its source has it, without the ranges that `Annotated` adds."""

    def __init__(self, text: str, names: dict[str, Any]) -> None:
        self.text, self.names = text, names

    def __repr__(self) -> str:
        return ast.unparse(_Plain(self.names).visit(ast.parse(self.text, mode="eval")))


class _Plain(ast.NodeTransformer):
    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated":
            assert isinstance(node.slice, ast.Tuple)
            return self.visit(node.slice.elts[0])
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if metadata := getattr(self.names.get(node.id), "__metadata__", ()):
            if metadata[0] == PerLayer.__metadata__[0]:
                return ast.Name("PerLayer")
            return ast.Name(self.names[node.id].__origin__.__name__)
        return node


def _default(value: Any) -> Any:
    """A default as it is shown: a function by its name, a long text in short."""
    if inspect.isfunction(value) or inspect.isbuiltin(value):
        return _Raw(value.__name__)
    return _Raw("'…'") if isinstance(value, str) and len(value) > 60 else value


class _Raw:
    """A text that is shown without quotation marks."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returns: str
) -> tuple[str, str | None] | None:
    """Give a signature the annotations of the source: those of autodoc have all ranges."""
    if what not in ("class", "function", "method") or signature in (None, "", "()"):
        return None
    function = inspect.unwrap(obj)
    names = vars(sys.modules[function.__module__])
    found = inspect.signature(function)

    def plain(annotation: Any) -> Any:
        return _Annotation(annotation, names) if isinstance(annotation, str) else annotation

    parameters = [
        parameter.replace(
            annotation=plain(parameter.annotation), default=_default(parameter.default)
        )
        for parameter in found.parameters.values()
        if not (parameter.name.startswith("_") or parameter.name in ("self", "cls"))
    ]
    text = str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    result = found.return_annotation
    if what == "class" or result is inspect.Signature.empty:
        return text, None
    return text, repr(plain(result))


def _escaped(paragraph: str) -> str:
    """A paragraph whose * and | are characters, and whose `code` may be followed by a letter."""
    pieces = re.split(r"(`+[^`]+`+_*|\*\w[\w ]*\*)", paragraph)
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"([*|]|_(?!\w))", r"\\\1", pieces[i])
        if i and pieces[i][:1].isalnum():
            pieces[i] = "\\ " + pieces[i]
    return "".join(pieces)


def _read(app: Any, page: str, text: list[str]) -> None:
    """Offer files outside of docs/, such as the full tables of results/, for download."""
    up = "/".join([".."] * (page.count("/") + 1))
    text[0] = re.sub(rf"\]\(({re.escape(up)}/[^)#]+)(#[^)]*)?\)", r"](path:\1)", text[0])


def setup(app: Any) -> None:
    """Register the above with Sphinx, before napoleon reads the docstrings."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _described, priority=100)
