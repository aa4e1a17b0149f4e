"""A package of an outside author with one plugin and one action that work."""

from __future__ import annotations

import pytest

CAP = '''
"""No queue holds more than so many GPUs."""
from typing import ClassVar

import attrs
from attrs import validators as v

from gpusched.plugin import ALLOW, DEVICE, Reason, wait


@attrs.frozen(kw_only=True)
class CapArgs:
    max_gpus: int = attrs.field(default=4, validator=[v.ge(0)])


@attrs.frozen
class Cap:
    name: ClassVar[str] = "acmecap"
    api: ClassVar[int] = 1
    args: CapArgs

    def open(self, hooks, view):
        def check(gang):
            left = self.args.max_gpus * DEVICE - view.used_gpus(gang.queue)
            need = view.minimum(gang).get("nvidia.com/gpu")
            if need <= left:
                return ALLOW
            return wait(Reason.QUOTA_EXCEEDED, "needs {need}, {left} left", need=need // DEVICE, left=left // DEVICE)

        hooks.quota_check(check)
'''
SMALL = '''
"""Places the smallest gangs first, and only those that fit at once."""
from typing import ClassVar

import attrs

from gpusched.plugin import place_minimum


@attrs.frozen
class Small:
    name: ClassVar[str] = "acmesmall"

    def run(self, session):
        waiting = [gang for gang in session.gangs if gang.pending and gang.missing_members]
        for gang in sorted(waiting, key=lambda gang: (gang.missing_members, gang.key)):
            statement = session.statement()
            refusal = place_minimum(session, gang, statement)
            if refusal is None:
                session.placements.commit(gang, statement)
            else:
                statement.discard()
                session.outcomes.refuse(gang, refusal.reason, refusal.message)
'''


@pytest.fixture
def acme(packages):
    """One plugin, one action, and a plugin that cannot even be imported."""
    packages.install(
        "acme_policies",
        plugins="""
            acmecap = acme_policies.cap:Cap
            acmelost = acme_policies.lost:Lost
        """,
        actions="acmesmall = acme_policies.small:Small",
        cap=CAP,
        small=SMALL,
        lost="raise SystemExit('never to be seen')",
    )
    return packages
