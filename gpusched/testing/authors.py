"""For authors of policies and actions: a cluster in memory that runs theirs beside the shipped.

::

    c = cluster_under(BurstCap(args=BurstCapArgs(max_gpus=48))).nodes(8, gpus=8).queue("a")
    c.gang("large", pods=7, gpus=8, queue="a")
    c.when.bound()
    assert c.then.why("large") == "needs 56 GPUs, the burst cap leaves 48"
    assert c.then.faults() == ()
    assert repeats(c)

Nothing has to be installed or named in a file, and nothing listens anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gpusched.base.clock import SystemClock
from gpusched.config.model import DEFAULT, Config
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.framework.plugin import Plugin
from gpusched.session.state.policy import Action, Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing.given import Given


def cluster_under(
    *plugins: Plugin, actions: Sequence[str | Action] | None = None, config: Config = DEFAULT
) -> Given:
    """An empty cluster whose sessions ask these plugins first, then those of the configuration.

    What hooks about victims answer for a list is held against what they answer for each: where the
    two differ, that is among the faults of the decision.

    Args:
        plugins: a tier of their own before all others; none are replaced.
        actions: in place of the configuration's, in order: names of installed actions, or
            actions themselves.
        config: the shipped default unless given.

    Raises:
        ConfigError: the configuration, or one of the names, cannot be used.
    """
    if actions is not None:
        names = tuple(each for each in actions if isinstance(each, str))
        config = attrs.evolve(config, actions=names, action_lines=())
    policy = load_policy(config)
    if actions is not None:
        by_name = {action.name: action for action in policy.actions}
        order = tuple(by_name[each] if isinstance(each, str) else each for each in actions)
        policy = attrs.evolve(policy, actions=order)
    if plugins:
        policy = Policy(policy.actions, (plugins, *policy.tiers))
    given = Given(config=config, policy=policy)
    given.guard = PluginGuard(SystemClock(), compares_lists=True)
    return given


def repeats(c: Given) -> bool:
    """Whether the last session, held again on its snapshot with a clean memory, decides the same.

    A policy that keeps something between sessions, draws lots or iterates over a set does not
    pass for long.
    """
    assert c.snapshot is not None, "no session was run"
    again = decide(
        c.snapshot,
        c.policy,
        guard=PluginGuard(SystemClock()),
        session_cache=SessionCache(),
        placement=c.placement,
    )
    return again.plan == c.then.plan
