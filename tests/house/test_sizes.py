"""No file and no function grows so long that its reasons to change become many."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .source import ROOT, callables, modules

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60

LONG_FILES = {
    "gpusched/io/observe/telemetry.py": "one metric after the other",
    "tests/io/commit/test_status_writer.py": "one writer, one scripted server",
    "tests/lab/chaos/planted.py": "the list of faults that can be planted",
}
"""Files that may be longer, and why."""

LONG_FUNCTIONS = {
    # constructors that only keep what they are given
    "gpusched.io.cycle.session_cycle.SessionCycle.__init__",
    "gpusched.io.write.binder.Binder.__init__",
    "gpusched.session.state.session.Session.__init__",
    # one field, argument or path a line
    "gpusched.api.foreign.native_groups.native_fields",
    "gpusched.api.pod.decode.decode_pod",
    "gpusched.cli.devcluster.command.register",
    "gpusched.testing.entities.pod",
    # one search, one write, one wrapper: parts of them mean nothing alone
    "gpusched.cli.inspect.listing.api_objects.read_objects",
    "gpusched.devcluster.apiserver.writing.verbs.write_object",
    "gpusched.devices.allocator.allocate",
    "gpusched.devices.fit.maximal_counts",
    "gpusched.lab.chaos.crashes._CrashPlay.live",
    "gpusched.pluginhost.guard.PluginGuard.wrap_hook",
    "gpusched.session.rebalance.consolidation_model._ModelBuilder.build_model",
}
"""Functions that may be longer."""


def _lines(paths: Iterator[Path]) -> dict[str, int]:
    return {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in paths
    }


def _long_functions() -> dict[str, int]:
    return {
        f"{module}.{name}": lines
        for module, source in modules().items()
        for name, lines in source.callables
        if lines > FUNCTION_LINES_MAX
    }


def _long_files() -> dict[str, int]:
    paths = (
        path for top in ("gpusched", "plugins", "tests") for path in (ROOT / top).rglob("*.py")
    )
    return {name: lines for name, lines in _lines(paths).items() if lines > FILE_LINES_MAX}


def test_no_file_is_longer_than_it_may_be() -> None:
    assert {name: n for name, n in _long_files().items() if name not in LONG_FILES} == {}


def test_no_function_is_longer_than_it_may_be() -> None:
    assert {name: n for name, n in _long_functions().items() if name not in LONG_FUNCTIONS} == {}


def test_what_became_short_leaves_the_lists() -> None:
    assert sorted(LONG_FILES.keys() - _long_files().keys()) == []
    assert sorted(LONG_FUNCTIONS - _long_functions().keys()) == []


@pytest.mark.parametrize("body", ["def f():\n", "class C:\n  async def f(self):\n"])
def test_a_long_function_is_found_where_there_is_one(body: str) -> None:
    indent = "    " if body.startswith("class") else "  "
    tree = ast.parse(body + f"{indent}x = 1\n" * FUNCTION_LINES_MAX)
    assert [lines for _, lines in callables(tree)] == [FUNCTION_LINES_MAX + 1]
