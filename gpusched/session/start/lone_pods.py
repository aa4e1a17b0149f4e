"""Starts of gangs of one pod that wishes for nothing, by a way on which nothing else is looked at.

Most gangs of a burst are like that. Of what may be in the way of a start little can concern them, and most of that
is the same for all of them as long as nobody else is placed. What is decided here is what the long way decides;
where anything might be in the way, and where no node takes the pod, nothing is: then the long way says why.
"""

from __future__ import annotations

from gpusched.api.pod.pod import PodClass
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.allocate.pod_by_pod import has_one_pod
from gpusched.session.allocate.refusals.kept_refusals import KeptRefusals
from gpusched.session.backfill.earliest_start import has_published_start
from gpusched.session.backfill.reservations import session_reservations
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.gpu_types.options import chooses_gpu_types
from gpusched.session.state.nodes.open_nodes import AmountChoices
from gpusched.session.state.session import Session


class LonePods:
    """See the module.

    Args:
        session: in which they are started.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        # Orders of members may be at fault even with one of them.
        self._possible = not session.snapshot.reservations and not session.hooks.pod_orders
        self._spares = bool(session.hooks.topology.spares)
        self._choices = AmountChoices(
            session.node_usage, session.hooks.scores, session.class_infos.plain_classes
        )
        self._kept = session.cache.kept.get_or_make(KeptRefusals, KeptRefusals)

    def start(self, gang: Gang) -> bool | Unschedulable:
        """Give the pod its place, or say which quota refuses it; False where the long way must say what becomes of it."""
        session = self._session
        if not (self._possible and has_one_pod(gang) and self._is_free(gang)):
            return False
        pod = gang.pod_sets[0].pods[0]
        rows = self._choices.allowed_rows(pod.pod_class)
        if rows is None and not self._asks_amounts(pod.pod_class):
            return False
        verdict = first_refusal(session.hooks.quota_checks, gang)
        if verdict.refuses:
            return Unschedulable(Reason(verdict.reason), verdict.message)
        found = None if rows is None else self._choices.best_row(pod.pod_class, rows)
        if found is None:
            info = session.class_infos.class_info(pod.pod_class)
            found = info.class_fit.best_row(), info.request
        row, request = found
        if row < 0:
            return False
        statement = session.statement()
        statement.assign(pod, row, request)
        session.placements.commit(gang, statement)
        return True

    def _asks_amounts(self, pod_class: PodClass) -> bool:
        """Whether pods of a class ask for amounts of any one node, whatever its GPUs are."""
        if pod_class.claims or pod_class.share is not None or pod_class.unsupported:
            return False
        return not self._session.class_infos.may_have_pod_rules(pod_class)

    def _is_free(self, gang: Gang) -> bool:
        """Whether nothing that is promised, reserved or known concerns a gang, and types of GPUs are equal to it."""
        session = self._session
        if gang.expected_count or session.nominations.holds_room_for(gang):
            return False
        if session.node_usage.later or session.class_infos.is_confined:
            return False
        if self._spares and session.cluster_map.spared_rows(gang) is not None:
            return False
        if gang.pod_sets[0].pod_class.gpu and chooses_gpu_types(session, gang):
            return False
        reservations = session_reservations(session)
        if reservations is not None and (reservations.binds_any or has_published_start(gang)):
            return False
        return not self._kept.tells(session, gang)
