"""Packages and files of the lab, which lie in the one tree three folders up."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = ("gpusched/lab", "gpusched/cli/lab", "gpusched/testing")
SHIPPED = (".", "library", "experiments")
"""Folders of kwok-scenarios; the others belong to the embedded cluster."""

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
            f"share/gpusched/kwok-scenarios/{name}".removesuffix("/."),
            [
                str(path)
                for path in sorted(Path("../../../kwok-scenarios", name).iterdir())
                if path.is_file()
            ],
        )
        for name in SHIPPED
    ],
)
