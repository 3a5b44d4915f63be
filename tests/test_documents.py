"""README, docs/ and files that a public host reads: what they name exists, and they run."""

import contextlib
import functools
import importlib
import inspect
import io
import json
import os
import pathlib
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import yaml

import mimetic_jax
from mimetic_jax import initializers, nnx, rewrite, schemes, torch, train, weights, zoo
from mimetic_jax.base.errors import InputError
from mimetic_jax.base.exits import EarlyExit
from mimetic_jax.base.version import __version__
from mimetic_jax.command import console, experiment, shipped
from mimetic_jax.command.expressions import parse_scheme
from mimetic_jax.data import ImageDataset
from mimetic_jax.schemes.base import REGISTRY
from mimetic_jax.train import Comparison
from mimetic_jax.train.schema import leaves
from papers import PAPERS

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONFIGS = sorted((ROOT / "configs").glob("*.py"))
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def prose(path: pathlib.Path) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(path: pathlib.Path) -> set[str]:
    """The anchors that GitHub and the site give to the headings of a document."""
    counts: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor)
        counts[anchor] += 1
    return found


@each_document
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    dangling = []
    for link in links:
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if "://" in link:
            continue
        if (
            not target.is_relative_to(ROOT)
            or not target.exists()
            or (anchor and anchor not in anchors(target))
        ):
            dangling.append(link)
    assert dangling == []


def test_the_table_of_schemes_has_each():
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs/schemes.md").read_text(), re.MULTILINE)
    ours = REGISTRY.keys() & {*schemes.__all__}  # doctests define others
    assert ours <= set(re.findall(r"\w+", " ".join(rows)))


def test_the_site_has_every_document():
    """Each page is in one list of pages; Sphinx, too, warns of those that are in none."""
    docs = ROOT / "docs"
    listed = [
        (page.parent / name).relative_to(docs).with_suffix("").as_posix()
        for page in docs.rglob("*.md")
        for block in re.findall(r"^```{toctree}\n(.*?)^```", page.read_text(), re.M | re.S)
        for name in re.findall(r"^[a-z].*$", block, re.M)
    ]
    pages = [page for kind in ("md", "ipynb") for page in docs.rglob(f"*.{kind}")]
    names = {page.relative_to(docs).with_suffix("").as_posix() for page in pages}
    assert sorted(listed) == sorted(names - {"index"})


DESCRIBED = re.findall(
    r"^\.\. (?:autodata|autoclass|autofunction|autoexception|currentmodule|automodule):: ([\w.]+)",
    "\n".join(path.read_text() for path in sorted((ROOT / "docs/api").glob("*.md"))),
    re.MULTILINE,
)


def test_the_site_describes_every_public_object():
    names = {name.rpartition(".")[2] for name in DESCRIBED}
    for module in (mimetic_jax, schemes, weights, zoo, train):
        public = {name for name in module.__all__ if not name.startswith("_")}
        assert public - names - {"FAMILIES", "TABLES"} == set(), module.__name__
    for module in (initializers, nnx, torch):
        own = {
            name
            for name, value in vars(module).items()
            if isinstance(value, types.FunctionType)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        }
        assert own - names == set(), module.__name__


def test_docstrings_have_one_name_a_line():
    """Several names before one colon show neither their types nor their defaults on the site."""
    several = []
    for module in (mimetic_jax, schemes, weights, zoo, train, initializers, nnx, torch):
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            if not isinstance(value, type | types.FunctionType):
                continue
            own = hasattr(module, "__all__") or value.__module__ == module.__name__
            if not own:
                continue
            text = inspect.getdoc(value) or ""
            several += [f"{name}: {x}" for x in re.findall(r"^    (\w+(?:, \w+)+):", text, re.M)]
    assert several == []


def test_every_scheme_has_an_example():
    kinds = [getattr(schemes, name) for name in schemes.__all__]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, schemes.Scheme):
            assert ">>> " in inspect.getdoc(kind), kind


def test_what_the_site_describes_exists():
    """Without Sphinx, which the environment of the tests lacks."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "docs/api").glob("*.md")))
    inside, described = "", None
    for line in text.splitlines():
        if module := re.match(r"\.\. (?:currentmodule|automodule):: (\S+)", line):
            inside = module[1]
        elif name := re.match(r"(?:\.\. auto[a-z]+:: |   (?=[A-Za-z]))([\w.]+)", line):
            own = name[1].startswith("mimetic_jax.")
            described = pkgutil.resolve_name(name[1] if own else f"{inside}.{name[1]}")
        elif members := re.match(r"   :members: (\S.*)", line):
            assert all(hasattr(described, member) for member in members[1].split(", ")), line


@each_document
def test_files_and_modules_that_are_named_exist(path):
    """Such as `mimetic_jax/train/loop.py`, or `models/low_memory.py` inside of the package."""
    text = prose(path)
    folders = "mimetic_jax|configs|launch|papers|benchmarks|tests|results"
    inside = "|".join(p.name for p in (ROOT / "mimetic_jax").iterdir() if p.is_dir())
    pattern = rf"(?<![\w/.])(?:(?:{folders})/[a-z_\d/]*(?:\.\w+)?|(?:{inside})/[\w/]+\.py)"
    places = (ROOT, ROOT / "mimetic_jax")
    assert [x for x in re.findall(pattern, text) if not any((p / x).exists() for p in places)] == []
    for name in re.findall(r"python -m (mimetic_jax[\w.]*)", text):
        pkgutil.resolve_name(name)


@pytest.mark.parametrize("path", [*DOCUMENTS, *CONFIGS], ids=lambda path: path.name)
def test_commands_are_accepted(path, monkeypatch):
    """Config files exist, and take the arguments and fields that a command gives them."""
    monkeypatch.chdir(ROOT)
    text = path.read_text().replace("\\\n", " ")
    pattern = r"main\.py --config=configs/[a-z][^`\n]*|\bmimetic train [a-z][^`\n]*"
    for command in re.findall(pattern, text):
        if "PACKAGE" in command:  # stands for a module of the reader's
            continue
        command = command.replace("mymodel:MyViT", "tests.forms:LinenViT")  # likewise
        name, *words = shlex.split(command, comments=True)
        flags = words if name == "main.py" else console.translate(words, experiment.MODES)
        values = dict(flag.removeprefix("--").split("=", 1) for flag in flags if "=" in flag)
        try:
            config = shipped.load(values.pop("config"))
        except EarlyExit:  # the argument help prints them
            continue
        fields = dict(leaves(config))
        for flag in values:
            if flag.startswith("config."):
                field = re.sub(r"^config\.(arms\.\w+\.)?", "", flag)  # an arm has every field
                assert field in fields, f"{command}: no {flag}"


def test_the_readme_runs():
    """Its blocks of Python one after the other; a block of text is what the one before prints."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "text"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(blocks[0][1], names)
    assert printed.getvalue() == blocks[1][1]


def blocks_of_training() -> Iterator[tuple[str, str]]:
    """The programs of docs/training.md, each with the heading that it stands below."""
    text = (ROOT / "docs" / "training.md").read_text()
    for section in re.split("^## ", text, flags=re.MULTILINE):
        for block in re.findall(r"^```python\n(?!>>>)(.*?)^```", section, re.MULTILINE | re.DOTALL):
            yield section.partition("\n")[0], block


def test_the_module_of_the_page(tmp_path, monkeypatch):
    """The page's own module, which a session of doctest can't define: it has no import path."""
    module, *uses = (
        block for section, block in blocks_of_training() if section != "A scheme of your own"
    )
    (tmp_path / "mymodel.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    images, labels = np.zeros((6, 32, 32, 3), np.uint8), np.arange(6, dtype=np.int32) % 3
    names: dict[str, Any] = {
        "Comparison": functools.partial(Comparison, say=lambda line: None),
        "config": shipped.load("images:size=32,patch=8"),
        "mine": ImageDataset("mine", images, labels, images, labels, num_classes=3),
    }
    names["config"].batch = names["config"].eval.batch = 6
    # In the module, so that classes of the page have an import path.
    page = vars(importlib.import_module("mymodel"))
    whole = page["MyViT"](num_classes=3)
    names["my_init"] = lambda key, images, num_classes: whole.init(key, images)["params"]
    names["my_apply"] = lambda params, images: whole.apply({"params": params}, images)
    page.update(names)
    for use in uses:
        exec(use, page)
        assert page.pop("comparison").arms.keys() == {"default", "norm_matched_mimetic", "mimetic"}


def test_the_scheme_of_the_page(tmp_path, monkeypatch):
    """It trains as it stands there, by its import path too."""
    (scheme,) = (
        block for section, block in blocks_of_training() if section == "A scheme of your own"
    )
    (tmp_path / "mine.py").write_text(scheme)
    monkeypatch.syspath_prepend(tmp_path)
    kernels = {"fc1": np.arange(32.0).reshape(4, 8), "fc2": np.zeros((8, 4))}
    mlp = {"mlp": {name: {"kernel": kernel} for name, kernel in kernels.items()}}
    new = rewrite(jax.random.key(0), mlp, parse_scheme("mine:Tied(rho=-0.25)"))
    np.testing.assert_allclose(new["mlp"]["fc2"]["kernel"], -0.25 * kernels["fc1"].T)
    assert type(parse_scheme("SinCos(), NormMatched(mine:Tied)")[1].like).__name__ == "Tied"
    for wrong in ("mine:Tide()", "no_module:Tied()"):
        with pytest.raises(InputError, match=rf"scheme {wrong[:-2]} can't be imported: "):
            parse_scheme(wrong)
    loaded = shipped.load("digits_vit:width=16,depth=1,patch=4,steps=2")
    loaded.seeds, loaded.arms = (0,), {"default": {}}
    for arm, given in (("tied", "mine:Tied()"), ("norm_matched_tied", "NormMatched(mine:Tied())")):
        loaded.arms[arm] = {"scheme": (parse_scheme(given),)}
    results = Comparison(loaded, say=lambda line: None).train(tmp_path / "workdir")
    assert list(results.arms) == ["default", "tied", "norm_matched_tied"]


README = (ROOT / "README.md").read_text()


def pins(name: str) -> dict[str, dict[bool, str]]:
    """The versions of a file of requirements by package: for Python 3.12 and newer, and older."""
    found: dict[str, dict[bool, str]] = {}
    text = (ROOT / name).read_text()
    pattern = r"^([\w.-]+)==([\w.]+) *(?:; python_(?:full_)?version (>=|<) .3\.12.)?(?=[ \n])"
    for package, version, bound in re.findall(pattern, text, re.MULTILINE):
        sides = {">=": [True], "<": [False]}.get(bound, [True, False])
        key = package.lower().replace("_", "-")
        found.setdefault(key, {}).update(dict.fromkeys(sides, version))
    return found


def test_the_lock_has_the_pins():
    pinned, locked = pins("requirements.txt"), pins("requirements.lock")
    text = (ROOT / "pyproject.toml").read_text()
    core = {re.split("[<>=]", one)[0] for one in tomllib.loads(text)["project"]["dependencies"]}
    assert core | {"flax", "optax"} <= pinned.keys() & locked.keys()
    for package in pinned.keys() & locked.keys():
        assert locked[package] == pinned[package]


def test_the_workflow_runs_the_command_of_the_readme_on_its_versions():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    (command,) = re.findall(r"^(make test)\b", README, re.MULTILINE)
    assert [step["run"] for step in job["steps"] if "run" in step] == [command]
    tested = re.search(r"Tested: (.*?)\. JAX", README, re.DOTALL)[1]
    rows = job["strategy"]["matrix"]["include"]
    for row, words in zip(rows, " ".join(tested.split()).split("; "), strict=True):
        versions = {
            package: sides[row["python"] >= "3.12"]
            for package, sides in (
                pins("requirements.txt") | (pins(row["pins"]) if "pins" in row else {})
            ).items()
        }
        jax, flax = versions["jax"], versions["flax"]
        assert words == f"{row['python']} with JAX {jax} and Flax {flax}"
        assert versions["jaxlib"] == jax
    (setup,) = [step["with"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert setup["python-version"] == "${{ matrix.python }}"


def test_actions_are_pinned_by_commit():
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        text = path.read_text()
        used = re.findall(r"uses: (\S+)", text)
        assert used
        assert used == re.findall(r"uses: ([\w/-]+@[0-9a-f]{40}) # v[\d.]+\n", text)


def test_the_release_is_of_the_version_that_the_tag_names():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (check,) = [
        step["run"] for step in workflow["jobs"]["build"]["steps"] if "GITHUB_REF_NAME" in str(step)
    ]
    for tag, code in ((f"v{__version__}", 0), ("v0.0.1", 1)):
        done = subprocess.run(
            ["bash", "-c", check], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag}
        )
        assert done.returncode == code
    publish = workflow["jobs"]["publish"]
    assert (publish["needs"], publish["permissions"]) == ("build", {"id-token": "write"})


def test_the_citation_names_this_version_and_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    heading = f"## {__version__} ({citation['date-released']})\n"
    assert heading in (ROOT / "CHANGELOG.md").read_text()
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    cited = citation["references"]
    assert len(cited) == 3
    for paper, name in zip(cited, ("attention", "structured", "mlp"), strict=True):
        printed = " ".join(PAPERS[name].__doc__.split())
        assert paper["title"] in printed
        for author in paper["authors"]:
            assert f"{author['given-names']} {author['family-names']}" in printed or name == "mlp"
        assert str(paper["year"]) in printed
        (number,) = [one["value"] for one in paper["identifiers"]]
        assert number.removeprefix("arXiv:") in printed


CELLS = [
    cell
    for cell in json.loads((ROOT / "docs/first_steps.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
]
CODE = "\n".join(f"# cell {i}\n{''.join(cell['source'])}" for i, cell in enumerate(CELLS))


def test_outputs_are_those_of_one_execution():
    """Of all cells in their order, without an error or the paths of a machine."""
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    outputs = [output for cell in CELLS for output in cell["outputs"]]
    assert "error" not in {output["output_type"] for output in outputs}
    text = json.dumps(outputs)
    assert "/home/" not in text
    assert "/tmp" not in text
    (row,) = re.findall(r"\| counts_std_25 .*? \|\\n", text.replace('"', ""))
    assert "improvement by alignment" in row  # what the page says of it


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_cells_run_one_after_the_other(tmp_path):
    script = tmp_path / "cells.py"  # a file, since its model is found by the name of its module
    script.write_text(CODE.replace("steps=150", "steps=20"))
    # Without XLA's flags of this process: the first cell has to set what training asks for.
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment = {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=own | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| counts_std_25 ") == 1
