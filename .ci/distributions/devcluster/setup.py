"""Packages and files of the embedded cluster, which lie in the one tree three folders up."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = ("gpusched/devcluster", "gpusched/cli/devcluster", "gpusched/cli/demo")
SHIPPED = ("stages", "pools", "first-gang")
"""Folders of kwok-scenarios: how pods and nodes live, node pools, and what the demo plays."""

folders = {path.replace("/", "."): f"../../../{path}" for path in PACKAGES}
setup(
    package_dir=folders,
    packages=[
        name
        for top, folder in folders.items()
        for name in (top, *(f"{top}.{below}" for below in find_packages(folder)))
    ],
    data_files=[
        (
            f"share/gpusched/kwok-scenarios/{name}",
            [str(path) for path in sorted(Path("../../../kwok-scenarios", name).iterdir())],
        )
        for name in SHIPPED
    ],
)
