"""Options of the whole suite, and packages of outside authors."""

from __future__ import annotations

import gc
import os
import sys
import tomllib
from collections.abc import Generator, Iterable
from importlib import metadata
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, settings

from gpusched.session.containment import attempt
from gpusched.session.containment.attempt import describe_exception
from tests.populations import examples

# Neither how long an example takes nor how long it takes to make one says anything of what is tested.
settings.register_profile(
    "gpusched",
    max_examples=examples(30, whole=100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gpusched")

LONG_S = 15.0
"""So many seconds takes a test that is told to be long: three times what the mark is for, as machines differ."""


def pytest_configure() -> None:
    """Let the suite find the plugins and actions of this tree, whatever was installed before.

    An editable install shows modules as they are but entry points as they were. Where those
    of pyproject.toml differ, a distribution of the same name with the right ones goes first.
    """
    root = Path(__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    groups = {
        **project["entry-points"],
        "console_scripts": project["scripts"],
    }
    shown = {
        group: {point.name: point.value for point in metadata.distribution("gpusched").entry_points.select(group=group)}
        for group in groups
    }  # fmt: skip
    if shown == groups:
        return
    info = root / "build" / "entry-points" / f"gpusched-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: gpusched\nVersion: {project['version']}\n",
        "entry_points.txt": "\n".join(lines),
    }
    for name, text in files.items():
        fresh = info / f"{name}.{os.getpid()}"  # other workers of the suite do the same
        fresh.write_text(text)
        fresh.replace(info / name)
    sys.path.insert(0, str(info.parent))
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(info.parent), *([known] if known else [])])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--target`` and its alias ``--kubeconfig``."""
    group = parser.getgroup("contract", "conformance tests in tests/contract")
    group.addoption(
        "--target",
        default="devcluster",
        metavar="devcluster|KUBECONFIG[#CONTEXT]",
        help="the cluster that tests/contract is run against (default: an embedded one)",
    )
    group.addoption(
        "--kubeconfig",
        dest="target",
        metavar="KUBECONFIG[#CONTEXT]",
        help="the same, for a kubeconfig",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with those that are marked ``early``: what begins last is what all others wait for.

    The first worker gets them and waits in most, while the others use the processors.
    """
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name tests that should be marked ``early`` and are not."""
    late = late_and_long(terminalreporter.getreports("passed"))
    if late:
        terminalreporter.section("long tests without the mark early: docs/tests.md")
        for seconds, name in late:
            terminalreporter.write_line(f"{seconds:.0f}s {name}")


def late_and_long(reports: Iterable[pytest.TestReport]) -> list[tuple[float, str]]:
    """Seconds and names of tests of which others waited at the end, longest first."""
    return sorted(
        (
            (each.duration, each.nodeid)
            for each in reports
            if each.duration >= LONG_S and "early" not in each.keywords
        ),
        reverse=True,
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: looking for cycles in it takes a fifth of the time that all of it does."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Let Python look for cycles seldom, and never in what is imported and collected by now.

    With its own 700 new objects, a quarter to a third of the suite's CPU time goes into walking
    modules, test items and clusters that are still in use.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class Packages:
    """Throwaway packages: modules and a dist-info in a folder on ``sys.path``."""

    def __init__(self, folder):
        self.folder = folder
        self.modules = set()

    def install(self, package, *, plugins="", actions="", **modules):
        """A distribution with modules and the lines of its two entry point groups."""
        home = self.folder / package
        home.mkdir()
        (home / "__init__.py").write_text("")
        for name, text in modules.items():
            (home / f"{name}.py").write_text(dedent(text))
        info = self.folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[gpusched.plugins]\n{dedent(plugins)}\n[gpusched.actions]\n{dedent(actions)}\n"
        )
        self.modules.add(package)

    def forget(self):
        """What was imported from them."""
        for name in [each for each in sys.modules if each.split(".")[0] in self.modules]:
            del sys.modules[name]


@pytest.fixture(autouse=True, scope="session")
def temporary_folder(tmp_path_factory):
    """What is written for people to look at, as after a fault, goes where the suite's own files are and with them."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr("tempfile.tempdir", folder)
        yield


@pytest.fixture(autouse=True)
def nothing_is_contained(request, monkeypatch):
    """What a session contains is a defect: it fails every test but those of containment."""
    if request.node.get_closest_marker("contains"):
        yield
        return
    faults = []

    def seen(error, snapshot, stage):
        fault = describe_exception(error, snapshot, stage)
        faults.append(fault)
        return fault

    monkeypatch.setattr(attempt, "describe_exception", seen)
    yield
    assert not faults, f"contained in {faults[0].stage}: {faults[0].story}"


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """An empty folder for packages, on ``sys.path`` during the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    made = Packages(folder)
    yield made
    made.forget()
