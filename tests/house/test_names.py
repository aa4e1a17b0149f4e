"""Functions and methods have names that say something by themselves, so that a search finds them."""

from __future__ import annotations

import ast

import pytest

from .source import callables, modules

WORDS_THAT_SAY_NOTHING = frozenset(
    [
        "about",
        "above",
        "after",
        "again",
        "around",
        "at",
        "before",
        "beside",
        "enter",
        "given",
        "has",
        "held",
        "inside",
        "kept",
        "knows",
        "leave",
        "least",
        "left",
        "less",
        "life",
        "like",
        "look",
        "lost",
        "made",
        "more",
        "most",
        "of",
        "on",
        "only",
        "over",
        "part",
        "plus",
        "rest",
        "seen",
        "settle",
        "settled",
        "shown",
        "stays",
        "tell",
        "told",
        "try",
        "wake",
        "while",
        "whole",
        "who",
        "why",
        "within",
    ]
)
"""As the whole name of a function or method; with an object, as in ``wait_for_rest``, they are fine."""

ROOMS = (
    "gpusched.api",
    "gpusched.app",
    "gpusched.arrays",
    "gpusched.base",
    "gpusched.cache",
    "gpusched.cel",
    "gpusched.commit",
    "gpusched.config",
    "gpusched.devices",
    "gpusched.io",
    "gpusched.leader",
    "gpusched.placement",
    "gpusched.pluginhost",
    "gpusched.session",
    "gpusched.testing",
    "gpusched.topology",
    "gpusched.view",
    "gpusched_plugins",
)
"""Packages that are free of them: all but the command line, the lab and the embedded cluster."""

SAID_BY_THEIR_OBJECT = {
    # of the public library, where authors of plugins know them
    "gpusched.api.meta.resources.Resources.of",
    "gpusched.api.meta.resources.Resources.plus",
    "gpusched.session.framework.accounts.queue_accounts.less",
    "gpusched.session.framework.view.View.held",
    "gpusched.testing.given.Then.why",
    # values of the object that stands before them
    "gpusched.api.meta.gpu_resources.GpuResources.whole",
    "gpusched.config.model.Config.at",
    "gpusched.io.observe.telemetry.HistoryState.lost",
    "gpusched.io.observe.tracing.Tracing.on",
    "gpusched.session.framework.accounts.queue_accounts.QueueDemand.held",
    # verbs of loops and stores, each of one protocol
    "gpusched.io.cycle.session_cycle.SessionCycle.wake",
    "gpusched.io.watch.cache_comparer.ComparedStore.knows",
    "gpusched.io.watch.informers.KindEventHandler.knows",
}
"""Exceptions: what they are asked of says the rest."""


def _says_nothing(name: str) -> bool:
    return name.rpartition(".")[2].strip("_") in WORDS_THAT_SAY_NOTHING


def _silent_names() -> set[str]:
    return {
        f"{module}.{name}"
        for module, source in modules().items()
        if any(module == room or module.startswith(f"{room}.") for room in ROOMS)
        for name, _ in source.callables
        if "()" not in name and _says_nothing(name)
    }


def test_no_function_is_called_by_a_word_that_says_nothing() -> None:
    assert sorted(_silent_names() - SAID_BY_THEIR_OBJECT) == []


def test_what_has_another_name_leaves_the_list() -> None:
    assert sorted(SAID_BY_THEIR_OBJECT - _silent_names()) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def told(): ...", ["told"]),
        ("class C:\n    def _around(self): ...", ["C._around"]),
        ("def settle_gang(): ...", []),
    ],
)
def test_a_silent_name_is_found_where_there_is_one(code: str, found: list[str]) -> None:
    assert [name for name, _ in callables(ast.parse(code)) if _says_nothing(name)] == found
