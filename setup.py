"""What pyproject.toml cannot say: which packages are the daemon, that the folder plugins is the
package gpusched_plugins, that the folders of shipped files keep their shape under share/gpusched,
and where the extras come from.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
SHIPPED = ("manifests", "conf")
EXTRAS = {"devcluster": ("devcluster",), "lab": ("devcluster", "lab")}
"""Distributions of each extra: folders below .ci/distributions/."""
LIBRARIES = {
    "history": ["pyarrow>=26"], "top": ["textual>=8.2"], "tune": ["optuna>=5"], "ray": ["ray==2.60.0"],
}  # fmt: skip
"""Libraries of extras that hold nothing of ours: Parquet is 50 MB that few need, a daemon has no screen,
policies are tuned seldom, and Ray (79 MB packed, 260 MB installed) is for those who have such a cluster, whose
version it has to be: 2.60.0 is the one that was tried. It is in no lock: tests with it are skipped without it."""
OF_THE_LAB = ("tune", "ray")
"""Extras that nobody can use without the lab."""
OF_EXTRAS = (
    "gpusched.devcluster", "gpusched.cli.devcluster", "gpusched.cli.demo",
    "gpusched.lab", "gpusched.cli.lab", "gpusched.testing",
)  # fmt: skip
"""Packages that those distributions hold."""


def shipped_files() -> list[tuple[str, list[str]]]:
    """Pairs of a folder below the prefix of the installation and the files that go there."""
    folders: dict[str, list[str]] = {}
    for top in SHIPPED:
        for file in sorted(Path(top).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                folders.setdefault(f"share/gpusched/{file.parent.as_posix()}", []).append(str(file))
    return sorted(folders.items())


def requirement(name: str) -> str:
    """The distribution of that name as a requirement: the folder of a checkout, else by version."""
    folder = ROOT / ".ci" / "distributions" / name
    if folder.is_dir():
        return f"gpusched-{name} @ {folder.as_uri()}"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return f"gpusched-{name}=={version}"


setup(
    packages=[
        *find_packages(
            include=["gpusched", "gpusched.*"],
            exclude=[*OF_EXTRAS, *(f"{name}.*" for name in OF_EXTRAS)],
        ),
        "gpusched_plugins",
        *(f"gpusched_plugins.{name}" for name in find_packages("plugins")),
    ],
    package_data={"gpusched.io.serve": ["page/*", "page/*/*"]},  # what browsers read
    data_files=shipped_files(),
    extras_require={
        **{extra: [requirement(name) for name in names] for extra, names in EXTRAS.items()},
        **{
            extra: [*libraries, *map(requirement, EXTRAS["lab"] if extra in OF_THE_LAB else ())]
            for extra, libraries in LIBRARIES.items()
        },
    },
)
