"""What pyproject.toml cannot say: the folder plugins is the package gpusched_plugins, and the
folders of shipped files keep their shape under share/gpusched.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

SHIPPED = ("manifests", "conf", "kwok-scenarios")


def shipped_files() -> list[tuple[str, list[str]]]:
    """Pairs of a folder below the prefix of the installation and the files that go there."""
    folders: dict[str, list[str]] = {}
    for top in SHIPPED:
        for file in sorted(Path(top).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                folders.setdefault(f"share/gpusched/{file.parent.as_posix()}", []).append(str(file))
    return sorted(folders.items())


setup(
    packages=[
        *find_packages(include=["gpusched", "gpusched.*"]),
        "gpusched_plugins",
        *(f"gpusched_plugins.{name}" for name in find_packages("plugins")),
    ],
    data_files=shipped_files(),
)
