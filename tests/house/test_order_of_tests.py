"""The suite begins with its long tests, and says which ones it takes for short by mistake."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from .source import ROOT


@pytest.fixture
def of_the_suite(pytestconfig):
    """The hooks of tests/conftest.py."""
    return pytestconfig.pluginmanager.getplugin(str(ROOT / "tests" / "conftest.py"))


def item(name, *marks):
    return SimpleNamespace(
        name=name, get_closest_marker=lambda mark: object() if mark in marks else None
    )


def test_what_is_marked_early_comes_first_and_all_else_stays_in_order(of_the_suite):
    items = [item("a"), item("b", "long", "early"), item("c", "long"), item("d", "early")]
    of_the_suite.pytest_collection_modifyitems(items)
    assert [each.name for each in items] == ["b", "d", "a", "c"]


def test_this_run_is_in_that_order(request):
    late = [each.get_closest_marker("early") is None for each in request.session.items]
    assert late == sorted(late)


def test_a_long_test_without_the_mark_is_told(of_the_suite):
    def report(name, duration, *keywords):
        return SimpleNamespace(nodeid=name, duration=duration, keywords=dict.fromkeys(keywords, 1))

    told = of_the_suite.late_and_long(
        [
            report("short", 14.9),
            report("marked", 40.0, "early"),
            report("long", 15.0, "long"),
            report("longer", 40.0),
        ]
    )
    assert told == [(40.0, "longer"), (15.0, "long")]
