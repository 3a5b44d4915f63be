"""The rules of language of CONTRIBUTING.md a program sees, in texts, messages and docstrings."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

from launch.tables import BLOCK

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "results/notes").glob("*.md")),
]
CODE = sorted((ROOT / "mimetic_jax").rglob("*.py"))

PHRASES = {
    "a decimal without its 0": r"(?<![\w.)\]…])\.\d",
    "a space before %": r"\d %",
    "a hyphen for a minus": r"(?<![\w.)\]}%-])-\d",
    "unless given: write 'defaults to'": r"\bunless given\b",
    "is no: write 'is not a' or 'has no'": (
        r"(?<!there )(?<!There )\b(?:is|are|was|were) (?:no(?! longer| more)|none)\b"
    ),
    "is refused: write 'raises' or 'must be'": r"\b(?:is|are|was|were) refused\b",
    "trainings: write 'training runs'": (
        r"\ba training(?! (?:step|image|set|split|run|text|state|curve|token|example))\b"
        r"|\btrainings\b"
    ),
}
WORDS, COLONS = 35, 1

EXCEPTIONS = {
    "CONTRIBUTING.md": ('"is no list"', "are none", "unless given", "is refused"),  # the rules
}
"""Words of a document that aren't held to the rules."""

COPIED = re.compile(r"(?<=\| )[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\](?= \|)")
"""A cell of a table in results/notes that is the text of a generated table, with its hyphens."""


def prose(text: str) -> str:
    """Markdown without tables that are generated, blocks, addresses and code, which becomes C."""
    text = BLOCK.sub("", text)
    text = re.sub(r"^(```|:::)[^\n]*\n.*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\$\$.*?^\$\$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4,}(?![-*|]).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`|\$[^$\n]+\$", "C", text)
    text = re.sub(r"<[^>]+>", "", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs, items of lists and cells of tables."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=[|:#])", text):
        for part in paragraph.split("|") if paragraph.startswith("|") else [paragraph]:
            part = re.sub(r"^\s*(?:[-*:#]+|\d+\.) ", "", part)
            yield from re.split(r"(?<=[.!?])\s+(?=[^a-z]|mimetic_jax)", " ".join(part.split()))


def faults(text: str) -> list[str]:
    """What is against the rules, each with its place."""
    found = []
    for sentence in sentences(text):
        for name, pattern in PHRASES.items():
            found += [f"{name}: {sentence}" for _ in re.finditer(pattern, sentence)]
        if len(words := sentence.split()) > WORDS:
            found.append(f"{len(words)} words: {sentence}")
        if (colons := len(re.findall(r":(?=\s|$)", sentence))) > COLONS:
            found.append(f"{colons} colons: {sentence}")
    return found


@pytest.mark.parametrize(
    "path",
    DOCUMENTS,
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_document_is_in_plain_english(path):
    text = path.read_text().partition("\n## 0.2.0")[0]  # of the changelog
    for words in EXCEPTIONS.get(path.name, ()):
        assert words in text
        text = text.replace(words, "")
    if path.parent.name == "notes":
        text = COPIED.sub("C", text)
    assert faults(prose(text)) == []


def text_of(node: ast.AST) -> str:
    """A text of the code, in which X stands for what is inserted."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(text_of, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
    return "X"


def messages(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """The texts of errors."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id="InputError"), args=[text, *_]):
                yield node.lineno, text_of(text)


def test_the_page_of_errors_quotes_the_code():
    nodes = (node for path in CODE for node in ast.walk(ast.parse(path.read_text())))
    texts = [text_of(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    lines = re.findall(r'^".*"$', (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    quoted = [words.strip("… ") for line in lines for words in re.findall(r'"([^"]+)"', line)]
    assert len(quoted) > 10
    assert [words for words in quoted if not any(words in text for text in texts)] == []


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_are_in_plain_english(path):
    # The calls that a message prints are code.
    code = re.compile(r"`[^`]+`|--?[\w-]+=\S+|\w+=\S+|\w+\([^()]*\)")
    found = []
    for line, message in messages(path):
        text = code.sub("C", message)
        wrong = [*faults(text), *re.findall(r"(?:[;:.,] |^)[Gg]ive .{,9}", text)]  # write "pass"
        found += [f"{path.name}:{line}: {fault}" for fault in wrong]
    assert found == []


def docstrings(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Those of a module, its classes and functions, without examples and code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = re.sub(
                r"^ *>>>.*?(?=\n\n|\Z)", "", ast.get_docstring(node) or "", flags=re.M | re.S
            )
            yield getattr(node, "lineno", 1), re.sub(r"`[^`]+`|\w\[::-1\]", "C", text)


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_have_no_phrase_of_the_rules(path):
    found = [
        f"{path.name}:{line}: {name}: {text[match.start() - 30 : match.end() + 30]!r}"
        for line, text in docstrings(path)
        for name, pattern in PHRASES.items()
        for match in re.finditer(pattern, text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "It is .5 or more.",
        "It gains 5 % more.",
        "β is -0.4 there.",
        "N unless given.",
        "That is no list.",
        "These are none.",
        "A list is refused.",
        "All trainings end.",
        "One: two: three.",
        " ".join(["word"] * 36),
    ],
)
def test_each_rule_finds_its_fault(text):
    assert len(faults(text)) == 1
    assert faults("There is no list: 0.5, 5%, −0.4, 0-7, v0.3.0 and `x`.") == []
