"""Scenarios as text, and the list of those that do not hold yet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.behaviour.notation import daemon_player
from tests.behaviour.notation.cases import parse_cases
from tests.behaviour.notation.judge import outcome_differences

OPEN = Path(__file__).with_name("scenarios_open.txt")
_HEAD = (
    "# Scenarios that do not hold yet: test, :: and why. Written anew by\n"
    "#   SETTLE=1 pytest tests/behaviour -k test_s\n"
)


def open_scenarios():
    lines = OPEN.read_text().splitlines() if OPEN.exists() else []
    pairs = [line.split(" :: ", 1) for line in lines if line.strip() and line[0] != "#"]
    return {name.strip(): why.strip() for name, why in pairs}


def pytest_collection_modifyitems(config, items):
    known = open_scenarios()
    for item in items:
        if why := known.get(item.originalname if hasattr(item, "originalname") else item.name):
            item.add_marker(pytest.mark.xfail(reason=why, strict=True))


class Settle:
    """Which scenarios held in this run, and which did not."""

    def __init__(self):
        self.held = {}

    def pytest_runtest_logreport(self, report):
        """A test ended."""
        name = report.nodeid.rpartition("::")[2].partition("[")[0]
        if report.when == "call" and name.startswith("test_s"):
            good = report.passed and not hasattr(report, "wasxfail")
            strict = "[XPASS(strict)]" in str(report.longrepr)
            self.held[name] = self.held.get(name, True) and (good or strict)

    def pytest_sessionfinish(self, session):
        """Write the list."""
        known = {k: why for k, why in open_scenarios().items() if k not in self.held}
        old = open_scenarios()
        known |= {
            name: old.get(name, "new: not looked into")
            for name, held in self.held.items()
            if not held
        }
        OPEN.write_text(_HEAD + "".join(f"{k} :: {why}\n" for k, why in sorted(known.items())))


def pytest_configure(config):
    if os.environ.get("SETTLE"):
        config.pluginmanager.register(Settle())


@pytest.fixture
def holds():
    """Play a scenario on the whole daemon; what it promises must hold."""

    def play(text):
        (case,) = parse_cases("case it\n" + text, family="scenario")
        seen = daemon_player.play_on_daemon(case)
        assert outcome_differences(case, seen) == []
        return seen

    return play
