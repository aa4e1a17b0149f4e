"""What plugins/README.md teaches works as printed."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gpusched.config.load import load
from gpusched.limits import PLUGIN_FAULTS_MAX
from gpusched.pluginhost.registry import ACTIONS, PLUGINS, load_policy
from gpusched.session.hooks import SCORE_MAX, Hooks

README = (Path(__file__).parents[2] / "plugins" / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def module():
    """The plugin of the page, imported as a module."""
    made = ModuleType("acme_policies_burstcap")
    sys.modules[made.__name__] = made
    exec(compile(blocks("python")[0], "README", "exec"), made.__dict__)
    yield made
    del sys.modules[made.__name__]


def test_the_test_of_the_page_passes(module):
    """An author who copies both blocks has a plugin and a passing test."""
    exec(compile(blocks("python")[1], "README", "exec"), module.__dict__)
    module.test_a_queue_may_use_its_cap_and_not_more()


def test_the_configuration_of_the_page_loads_the_plugin(module):
    """Name, argument key and api are what the loader wants."""

    class Point:
        def __init__(self, name):
            self.name, self.value = name, name

        def load(self):
            """The plugin of the page; the others under their own names."""
            base = module.BurstCap
            if self.name == "burstcap":
                return base
            namespace = {"name": self.name, "api": 1, "open": base.open}
            return module.attrs.frozen(type(self.name, (), namespace))

    class Nothing:
        name = "allocate"

        def run(self, session):
            """Nothing."""

    class ActionPoint(Point):
        def load(self):
            """An action."""
            return Nothing

    names = ("priority", "gang", "burstcap", "predicates", "nodeorder")
    offered = {PLUGINS: [Point(name) for name in names], ACTIONS: [ActionPoint("allocate")]}
    (text,) = blocks("yaml")
    policy = load_policy(
        load(f"actions: [allocate]\n{text}", source="README"), offers=lambda group: offered[group]
    )
    assert policy.tiers[0][2] == module.BurstCap(args=module.BurstCapArgs(max_gpus=48))


def test_the_list_of_hooks_is_complete():
    """The table names exactly the hooks that can be registered."""
    told = re.findall(r"^\| `(\w+)\(", README, re.MULTILINE)
    registered = [
        name
        for name, _ in inspect.getmembers(Hooks, inspect.isfunction)
        if not name.startswith("_")
    ]
    assert sorted(told) == sorted(registered)


def test_the_numbers_are_the_programs():
    """Bounds in the text are those in the code."""
    assert f"After {PLUGIN_FAULTS_MAX} faults in a row" in README
    assert SCORE_MAX == 1_000_000
    assert "clamped to a million" in README
