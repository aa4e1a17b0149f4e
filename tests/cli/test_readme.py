"""The README's links, commands and YAML are those of this repository."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gpusched.cli.main import COMMANDS, main
from gpusched.lab.scenario.file.read import read_path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    """Every relative link is a file or folder."""
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) > 8
    for target in targets:
        assert (ROOT / target).exists(), target


def test_every_command_is_in_the_table():
    """The table of commands names each one that exists, and no other."""
    table = README.partition("## Commands")[2].partition("## ")[0]
    assert set(re.findall(r"`gpusched ([a-z-]+)", table)) == set(COMMANDS)


def test_every_target_of_the_makefile_is_named():
    """The section on development lists the targets."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE)) - {"help"}
    section = README.partition("## Development")[2]
    for target in targets:
        assert f"`{target}`" in section, target


def test_the_tutorial_s_gang_is_whole():
    """The PodGroup and the Job of the tutorial belong together and ask for a gang."""
    text, _ = _yaml_blocks()
    group, job = yaml.safe_load_all(text)
    template = job["spec"]["template"]
    assert template["metadata"]["labels"]["gpusched.io/pod-group"] == group["metadata"]["name"]
    assert job["spec"]["completions"] == group["spec"]["minMember"]
    assert template["spec"]["schedulerName"] == "gpusched"


def test_the_first_scenario_is_read_as_it_stands(tmp_path):
    """Ten lines, which `gpusched scenario run` takes."""
    _, text = _yaml_blocks()
    file = tmp_path / "first.yaml"
    file.write_text(text)
    (scenario,) = read_path(file)
    assert scenario.teaches == "A gang starts as a whole."
    assert len(text.splitlines()) == 10


def _yaml_blocks() -> list[str]:
    found: list[str] = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return found


def test_the_statuses_in_the_table_are_those_of_the_program(capsys):
    """A wrong option is the status that the table calls wrong usage."""
    section = README.partition("| exit status |")[2].partition("## ")[0]
    assert re.findall(r"^\| (\d+) \|", section, re.MULTILINE) == [
        "0",
        "1",
        "2",
        "69",
        "70",
        "77",
        "78",
    ]
    assert main(["demo", "--seconds", "-1"]) == 2
    assert capsys.readouterr().err
