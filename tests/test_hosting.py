"""Files that a public host reads: the workflow runs README's tests, the citation is complete."""

import pathlib
import re
import tomllib

import yaml

from mimetic_jax.base.version import __version__
from papers import PAPERS

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_workflow_runs_the_command_of_the_readme_on_its_versions_of_python():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    (command,) = re.findall(r"^(make test)\b", README, re.MULTILINE)
    assert [step["run"] for step in job["steps"] if "run" in step] == [command]
    tested = re.search(r"tested with (.*?)\)", README)
    assert job["strategy"]["matrix"]["python"] == tested[1].split(" and ")
    (setup,) = [step["with"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert setup["python-version"] == "${{ matrix.python }}"


def test_the_citation_names_this_version_and_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
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
