"""What is shipped is complete: wheel, image, lock files, and the way to find files in them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from gpusched.base import installed_files
from gpusched.base.errors import GpuschedError

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> set[str]:
    """The names of the files in a wheel that was built from a copy of the sources."""
    source = tmp_path_factory.mktemp("source")
    for folder in (*PACKAGES, *SHIPPED):
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, source / folder)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--no-index", "--wheel-dir", "wheels", "."], cwd=source, check=True)
    (archive,) = (source / "wheels").glob("*.whl")
    with zipfile.ZipFile(archive) as opened:
        return set(opened.namelist())


def files_of(folder: str) -> set[str]:
    """Relative names of the files below a folder of the repository."""
    base = ROOT / folder
    return {
        file.relative_to(base).as_posix()
        for file in base.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_carries_every_manifest_and_scenario(wheel):
    """Each shipped folder arrives under share/gpusched in its own shape."""
    for folder in SHIPPED:
        prefix = f"gpusched-0.1.0.data/data/share/gpusched/{folder}/"
        carried = {name.removeprefix(prefix) for name in wheel if name.startswith(prefix)}
        assert carried == files_of(folder)


def test_the_wheel_carries_every_module(wheel):
    """Mechanism and plugins are both in it, with the files that they read."""
    for folder, package in PACKAGES.items():
        present = {n for n in files_of(folder) if n.endswith((".py", ".gz"))}
        assert {f"{package}/{name}" for name in present} <= wheel


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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert names(project["dependencies"]) <= set(runs)
    tools = names(project["optional-dependencies"]["dev"]) - {"gpusched"}
    assert not tools & set(runs)


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
    copied = set(re.findall(r"(?m)^COPY --from=build (\S+)", text))
    assert copied == {"/opt/gpusched", "/opt/gpusched-run"}
    assert "cp -r /opt/gpusched /opt/gpusched-run" in text
    made = re.findall(r"python -m venv (.*?)(\S+) \\\n", text)
    assert ("--without-pip ", "/opt/gpusched") in made
    assert "/opt/gpusched/bin/pip" not in text
