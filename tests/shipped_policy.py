"""The shipped policy with other arguments of single plugins."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from gpusched.config.model import DEFAULT, Argument, Config


def with_arguments(**by_plugin: Mapping[str, Argument]) -> Config:
    """The built-in configuration, these plugins with these arguments alone."""
    tiers = tuple(
        attrs.evolve(
            tier,
            plugins=tuple(
                attrs.evolve(each, arguments=by_plugin[each.name])
                if each.name in by_plugin
                else each
                for each in tier.plugins
            ),
        )
        for tier in DEFAULT.tiers
    )
    assert {each.name for tier in tiers for each in tier.plugins} >= set(by_plugin)
    return attrs.evolve(DEFAULT, tiers=tiers)
