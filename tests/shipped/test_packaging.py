"""What is shipped is complete: wheel, image, lock files, and the way to find files in them."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from gpusched import __version__
from gpusched.base import installed_files
from gpusched.base.errors import GpuschedError

# Beside test_bare_installation.py, in one worker: the wheels are built once for both.
pytestmark = pytest.mark.early

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("manifests", "conf", "kwok-scenarios")
PACKAGES = {"gpusched": "gpusched", "plugins": "gpusched_plugins"}


def pins(lock: str) -> dict[str, str]:
    """Package names of a lock file with their versions."""
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / lock).read_text()))


def names(dependencies: list[str]) -> set[str]:
    """Package names of requirements, in the spelling of lock files."""
    found = (re.match(r"[\w.-]+", dependency) for dependency in dependencies)
    return {match[0].lower().replace("_", "-") for match in found if match}


def files_in(wheel: Path) -> set[str]:
    """Names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def metadata_of(wheel: Path) -> Message:
    """The fields that a wheel says of itself."""
    (name,) = (name for name in files_in(wheel) if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as opened:
        return Parser().parsestr(opened.read(name).decode())


def files_of(folder: str) -> set[str]:
    """Relative names of the files below a folder of the repository."""
    base = ROOT / folder
    return {
        file.relative_to(base).as_posix()
        for file in base.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_each_shipped_file_is_in_exactly_one_wheel(wheels):
    """Manifests and conf come with the daemon, stages with the cluster, scenarios with the lab."""
    holders: dict[str, list[str]] = {}
    for name, wheel in wheels.items():
        for file in files_in(wheel):
            if ".data/data/share/gpusched/" in file:
                holders.setdefault(file.partition("/share/gpusched/")[2], []).append(name)
    wanted = {f"{folder}/{name}" for folder in SHIPPED for name in files_of(folder)}
    assert set(holders) == wanted
    assert [file for file, names in holders.items() if len(names) > 1] == []
    assert {tuple(names) for file, names in holders.items() if "/" not in file} == set()
    assert holders["conf/gpusched.yaml"] == holders["manifests/crds/queues.yaml"] == ["gpusched"]
    assert holders["kwok-scenarios/stages/pod-lifecycle.yaml"] == ["devcluster"]
    assert holders["kwok-scenarios/first.yaml"] == ["lab"]
    assert holders["kwok-scenarios/scenario.schema.json"] == ["lab"]


def test_each_module_is_in_exactly_one_wheel(wheels):
    """Nothing is lost between the three distributions, and none overwrites another's files."""
    carried = [
        name
        for wheel in wheels.values()
        for name in files_in(wheel)
        if ".data/" not in name and ".dist-info/" not in name
    ]
    present = {
        f"{package}/{name}" for folder, package in PACKAGES.items() for name in files_of(folder)
    }
    assert sorted(carried) == sorted(present - {"gpusched_plugins/README.md"})


def test_the_bare_wheel_is_the_daemon_and_the_commands_that_read(wheels):
    """Neither the embedded cluster nor what tries things out, nor a library that only they use."""
    packages = {Path(name).parts[:2] for name in files_in(wheels["gpusched"])}
    assert not packages & {("gpusched", name) for name in ("devcluster", "lab", "testing")}
    commands = {Path(n).parts[2] for n in files_in(wheels["gpusched"]) if "gpusched/cli/" in n}
    assert commands == {
        "__init__.py", "main.py", "command.py", "run.py", "check_config.py", "inspect", "version.py",
            "shell", "act", "bundle",
    }  # fmt: skip
    required = names([line for line in requirements(wheels["gpusched"]) if "extra ==" not in line])
    assert not required & {"rich", "textual", "sortedcontainers", "purejq"}


def requirements(wheel: Path) -> list[str]:
    """What a wheel needs of others, a line each."""
    return list(metadata_of(wheel).get_all("Requires-Dist", []))


def test_an_extra_of_a_checkout_is_the_folder_of_its_distribution(wheels):
    """So `pip install '.[lab]'` asks no registry for packages of ours."""
    extras = [line for line in requirements(wheels["gpusched"]) if "extra ==" in line]
    told = sorted(
        (re.sub(r"file:///\S+/.ci/distributions/", "CHECKOUT/", line)).replace("'", '"')
        for line in extras
    )
    assert told == [
        'gpusched-devcluster @ CHECKOUT/devcluster ; extra == "devcluster"',
        'gpusched-devcluster @ CHECKOUT/devcluster ; extra == "lab"',
        'gpusched-devcluster @ CHECKOUT/devcluster ; extra == "ray"',
        'gpusched-devcluster @ CHECKOUT/devcluster ; extra == "tune"',
        'gpusched-lab @ CHECKOUT/lab ; extra == "lab"',
        'gpusched-lab @ CHECKOUT/lab ; extra == "ray"',
        'gpusched-lab @ CHECKOUT/lab ; extra == "tune"',
        'optuna>=5; extra == "tune"',
        'pyarrow>=26; extra == "history"',
        'ray==2.60.0; extra == "ray"',
        'textual>=8.2; extra == "top"',
    ]


def test_the_three_distributions_have_one_version(wheels):
    """They are released together, and each extra takes the daemon of its own version."""
    for wheel in wheels.values():
        assert metadata_of(wheel)["Version"] == __version__
    assert f"gpusched=={__version__}" in requirements(wheels["devcluster"])
    assert {f"gpusched=={__version__}", f"gpusched-devcluster=={__version__}"} <= set(
        requirements(wheels["lab"])
    )


def test_a_checkout_finds_its_own_files():
    """Without installation the files beside the package are used."""
    assert installed_files.path("manifests/crds") == ROOT / "manifests" / "crds"


def test_an_installation_finds_its_files_below_the_prefix(tmp_path, monkeypatch):
    """A package without a checkout around it looks in share/gpusched of its Python."""
    conf = tmp_path / "share" / "gpusched" / "conf"
    conf.mkdir(parents=True)
    monkeypatch.setattr(
        installed_files, "__file__", str(tmp_path / "lib" / "gpusched" / "base/installed_files.py")
    )
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert installed_files.path("conf") == conf


def test_a_missing_file_is_named_with_the_places():
    """The sentence says what is missing and what to do."""
    with pytest.raises(GpuschedError, match=r"conf/nope\.yaml is missing .* install it again"):
        installed_files.path("conf/nope.yaml")


def test_the_lock_of_the_image_agrees_with_the_development_lock():
    """What runs in production is what was tested: same versions, nothing missing."""
    runs, develops = pins("requirements-run.lock"), pins("requirements.lock")
    assert runs.items() <= develops.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert names(project["project"]["dependencies"]) <= set(runs)
    assert not names(project["dependency-groups"]["dev"]) & set(runs)


def test_the_lock_of_scenarios_holds_what_the_extras_need():
    """It is the daemon's lock and a few more, each as it was tested."""
    plays, develops = pins("requirements-scenarios.lock"), pins("requirements.lock")
    assert pins("requirements-run.lock").items() < plays.items() < develops.items()
    for name in ("devcluster", "lab"):
        text = (ROOT / ".ci" / "distributions" / name / "pyproject.toml").read_text()
        needed = names(tomllib.loads(text)["project"]["dependencies"])
        assert {name for name in needed if not name.startswith("gpusched")} <= set(plays)


def test_the_image_is_not_root_and_copies_what_exists():
    """Every COPY has a source that the ignore file lets in; the user is a number above 0."""
    text = (ROOT / "Dockerfile").read_text()
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().split()
        if "!" in line
    }
    copied = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", text)
    sources = {source for line in copied for source in line.split()}
    assert sources == allowed
    assert not {source for source in sources if not (ROOT / source).exists()}
    assert re.search(r"(?m)^USER [1-9]\d*:[1-9]\d*$", text)
    assert 'ENTRYPOINT ["gpusched"]\nCMD ["run"]' in text


def test_no_installer_reaches_the_image():
    """What is copied into the final stages is a venv without pip, and so without its setuptools."""
    text = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"(?m)^COPY --from=(\S+) (\S+)", text)
    assert copied == [("build-scenarios", "/opt/gpusched"), ("build", "/opt/gpusched")]
    made = re.findall(r"python -m venv (.*?)(\S+) \\\n", text)
    assert ("--without-pip ", "/opt/gpusched") in made
    assert "/opt/gpusched/bin/pip" not in text


def test_only_the_scenarios_image_gets_the_extras():
    """The last stage, which is built without a target, copies the stage before the extras come."""
    stages = re.split(r"(?m)^FROM ", (ROOT / "Dockerfile").read_text())[1:]
    build, extras, scenarios, daemon = stages
    assert ".ci/distributions" not in build
    assert ".ci/distributions/devcluster .ci/distributions/lab" in extras
    assert "requirements-scenarios.lock" in extras
    assert "--from=build-scenarios " in scenarios
    assert "--from=build " in daemon
