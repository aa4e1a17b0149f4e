"""Quota in queue order: which of the gangs that were admitted now have to wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.cache.gangs.gang import Gang
from gpusched.session.admission.admission_age import holds_nothing
from gpusched.session.allocate.equivalence_cache import quota_class_of
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.framework.verdict import Verdict, VerdictCode, first_refusal
from gpusched.session.state.equivalence import EquivalenceClass
from gpusched.session.state.session import Session


def refuse_beyond_quota(session: Session, gangs: Sequence[Gang]) -> None:
    """Refuse admission to gangs for which the gangs before them in turn leave no quota.

    Each gang in turn is judged with the minima of all gangs before it counted as taken.
    """
    charged: list[tuple[tuple[str, ...], Resources]] = []
    if _quota_allows_all(session, gangs):
        return
    refused: dict[EquivalenceClass, tuple[tuple[int, bool], Verdict]] = {}
    """By class, the verdict on its first gang: it holds for the others until one is let in."""
    for gang in in_queue_order(session, gangs):
        kind = quota_class_of(session, gang)
        state = session.queue_accounts.state_key()
        answer = refused.get(kind) if kind is not None else None
        if answer is None or answer[0] != state:
            answer = (state, first_refusal(session.hooks.reserve_checks, gang))
        verdict = answer[1]
        if verdict.refuses:
            # What raised for this gang says nothing about others of its class.
            if kind is not None and verdict.code is not VerdictCode.ERROR:
                refused[kind] = answer
            session.outcomes.postpone_admission(gang, verdict)
            continue
        if holds_nothing(gang):
            continue
        entry = (session.queue_path(gang), session.view.minimum(gang))
        session.queue_accounts.charge_nominated(*entry)
        charged.append(entry)
    for path, amounts in charged:
        session.queue_accounts.charge_nominated(path, amounts, times=-1)


def _quota_allows_all(session: Session, gangs: Sequence[Gang]) -> bool:
    """Whether quotas suffice for every gang beside all the others: then no order matters."""
    if not gangs or _are_all_sure(session, gangs):
        return True
    kinds: dict[EquivalenceClass | GangKey, list[Gang]] = {}
    for gang in gangs:
        kinds.setdefault(quota_class_of(session, gang) or gang.key, []).append(gang)
    entries = [
        (session.queue_path(alike[0]), session.view.minimum(alike[0]), len(alike))
        for alike in kinds.values()
    ]
    for path, amounts, count in entries:
        session.queue_accounts.charge_nominated(path, amounts, times=count)
    agreed = True
    for alike, (path, amounts, _) in zip(kinds.values(), entries, strict=True):
        session.queue_accounts.charge_nominated(path, amounts, times=-1)
        agreed = not first_refusal(session.hooks.reserve_checks, alike[0]).refuses
        session.queue_accounts.charge_nominated(path, amounts)
        if not agreed:
            break
    for path, amounts, count in entries:
        session.queue_accounts.charge_nominated(path, amounts, times=-count)
    return agreed


def _are_all_sure(session: Session, gangs: Sequence[Gang]) -> bool:
    """Whether policies that are asked about all of them at once are sure of each; False says nothing."""
    checks = session.hooks.joint_checks
    return None not in checks and all(
        check is not None and False not in check(gangs) for check in checks
    )
