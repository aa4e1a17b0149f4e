"""The three distributions as wheels, built from copies of the sources without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("gpusched", "plugins", "manifests", "conf", "kwok-scenarios", ".ci/distributions")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE")
BUILD = (
    sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps",
    "--no-build-isolation", "--disable-pip-version-check",
)  # fmt: skip


def build(folder: Path, wheels: Path) -> Path:
    """The wheel of the distribution in a folder."""
    before = set(wheels.glob("*.whl"))
    subprocess.run([*BUILD, "--wheel-dir", str(wheels), str(folder)], check=True)
    (made,) = set(wheels.glob("*.whl")) - before
    return made


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Wheels of gpusched, devcluster and lab, by these names."""
    source = tmp_path_factory.mktemp("checkout")
    ignore = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    place = tmp_path_factory.mktemp("wheels")
    return {
        "gpusched": build(source, place),
        **{
            name: build(source / ".ci" / "distributions" / name, place)
            for name in ("devcluster", "lab")
        },
    }
