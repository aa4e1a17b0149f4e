"""What plugins/README.md and docs/plugins.md teach works as printed."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from gpusched.base import limits
from gpusched.config.load import load_config
from gpusched.session.framework.hook_calls import SCORE_MAX
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.plugin import TellsOrder
from gpusched.session.framework.view import View
from gpusched.testing.given import Given, Then, When

ROOT = Path(__file__).parents[3]
README = (ROOT / "plugins" / "README.md").read_text()
DOCS = (ROOT / "docs" / "plugins.md").read_text()
ACME = ROOT / "docs" / "examples" / "acme-policies"


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


# -- the pages --------------------------------------------------------------------------------


def test_the_list_of_hooks_is_complete():
    """The table names exactly the hooks that can be registered, each with what it costs."""
    told = re.findall(r"^\| `(\w+)\(", README, re.MULTILINE)
    registered = [
        name
        for name, _ in inspect.getmembers(Hooks, inspect.isfunction)
        if not name.startswith("_")
    ]
    assert sorted(told) == sorted(registered)
    rows = [line for line in README.splitlines() if re.match(r"\| `\w+\(", line)]
    assert all(len(re.findall(r" \| ", row)) == 3 for row in rows)


def test_methods_that_tell_keys_are_those_of_the_program():
    """Each of them is shown, with its parameters, and no other one."""
    shown = re.findall(
        r"^def (tell_\w+)\(self, (.*?)\) -> Sequence\[KeyMeaning\]:", README, re.MULTILINE
    )
    asked = {
        name: str(inspect.signature(method)).partition(", /")[0].partition(", ")[2].replace("'", "")
        for name, method in inspect.getmembers(TellsOrder, inspect.isfunction)
        if name.startswith("tell_")
    }
    assert dict(shown) == asked


def test_the_parameters_of_hooks_are_those_of_the_program():
    """``node_score(score, weight=1)`` in the table is the signature of the method."""
    for name, told in re.findall(r"^\| `(\w+)\((.*?)\)`", README, re.MULTILINE):
        parameters = list(inspect.signature(getattr(Hooks, name)).parameters.values())[1:]
        shown = [
            p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default}"
            for p in parameters
        ]
        assert told == ", ".join(shown)


@pytest.mark.parametrize(
    ("page", "file"),
    [
        (README, "src/acme_policies/burstcap.py"),
        (README, "tests/test_burstcap.py"),
        (DOCS, "src/acme_policies/smallest.py"),
        (DOCS, "tests/test_smallest.py"),
    ],
)
def test_the_code_of_the_pages_is_the_code_of_the_example(page, file):
    """Whoever copies the page has the file, and the other way round."""
    assert (ACME / file).read_text() in blocks(page, "python")
    assert f"`{file}`" in page


def test_the_entry_points_of_the_pages_are_those_of_the_example():
    """Both groups, under their names."""
    project = tomllib.loads((ACME / "pyproject.toml").read_text())["project"]
    for page, group in ((README, "gpusched.plugins"), (DOCS, "gpusched.actions")):
        (text,) = blocks(page, "toml")
        told = tomllib.loads(text)["project"]["entry-points"]
        assert told == {group: project["entry-points"][group]}


def test_the_configuration_of_the_page_is_that_of_the_example():
    """The same tiers."""
    (text,) = blocks(README, "yaml")
    assert yaml.safe_load(text)["tiers"] == yaml.safe_load(_example("gpusched.yaml"))["tiers"]
    assert (
        load_config(text, source="README").tiers
        == load_config(_example("gpusched.yaml"), source="x").tiers
    )


def _example(name):
    return (ACME / name).read_text()


def test_what_the_page_says_of_the_view_and_of_the_test_builder_exists():
    """No row of the tables names what is not there."""
    rows = re.findall(r"^\| (`.*?) \| ", DOCS, re.MULTILINE)
    words = {word for row in rows for word in re.findall(r"`([a-z_.]+)\b", row)}
    known = {name for cls in (View, Given) for name in dir(cls) if not name.startswith("_")}
    known |= {f"when.{name}" for name in dir(When)} | {f"then.{name}" for name in dir(Then)}
    told = {word for word in words if not word.startswith("gpusched_")}
    assert told - {"open"} <= known
    assert {"allocated", "gang", "when.bound", "then.why"} <= told


def test_the_numbers_are_the_programs():
    """Bounds in the text are those in the code."""
    assert f"After {limits.PLUGIN_FAULTS_MAX} faults in a row" in README
    assert f"fails {limits.PLUGIN_FAULTS_MAX} times in a row" in DOCS
    assert SCORE_MAX == 1_000_000
    assert "clamped to a million" in README
    assert f"over {limits.PLUGIN_SLOW_S:g} s once" in DOCS
    assert f"does not come back for {limits.PLUGIN_STUCK_S:g} s" in DOCS
    assert f"nor for {limits.PLUGIN_STUCK_MAX_S:g} s" in DOCS
    assert limits.CONFIG_POLL_S == 2
    assert "every two seconds" in DOCS


# -- the example ------------------------------------------------------------------------------

BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The example package, built and installed in a folder, without any network."""
    folder = tmp_path_factory.mktemp("acme")
    source, site = folder / "source", folder / "site"
    for file in sorted(ACME.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = source / file.relative_to(ACME)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=source, check=True, capture_output=True, text=True,
    )  # fmt: skip
    with zipfile.ZipFile(folder / built.stdout.split()[-1]) as wheel:
        wheel.extractall(site)
    return site


def run(site, *words, cwd=ACME):
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd, env={**os.environ, "PYTHONPATH": path}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip


def test_the_tests_of_the_example_pass(site):
    """An author who copies the package has passing tests."""
    done = run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_configuration_of_the_example_is_good_once_it_is_installed(site):
    """check-config loads plugin and action by their entry points and has nothing to complain of."""
    program = "import sys; from gpusched.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = run(site, "-c", program, "check-config", "gpusched.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "enqueue, smallest, allocate" in done.stdout
    assert "burstcap (maxGpus: 48)" in done.stdout


def test_without_the_package_the_same_file_is_refused(tmp_path):
    """The names are not known by anything else."""
    program = "import sys; from gpusched.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = run(tmp_path, "-c", program, "check-config", "gpusched.yaml")
    assert done.returncode == 78
    assert 'unknown plugin "burstcap"' in done.stderr
