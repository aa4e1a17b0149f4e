"""What pods hold, made from the pods: for the ledger."""

from __future__ import annotations

import attrs

from gpusched.cache.ledger import Hold, Holding, gpus_of
from gpusched.cache.verify_shares import beside_shares
from gpusched.objects.meta import Rejected
from gpusched.objects.pod import Pod
from gpusched.objects.resources import Resources
from gpusched.objects.share import SHARED
from gpusched.objects.units import DEVICE


def bound(pod: Pod, *, ours: bool, sealed: bool) -> Holding:
    """What a pod with a node holds, as the API shows it; ``sealed`` when we wrote its slots.

    A share counts where we placed it. Other schedulers have their own ways to share GPUs, such
    as a pod that holds a whole one for all that share it.
    """
    held = placed(pod, pod.node, pod.slots, Hold.CONFIRMED, ours=ours, sealed=sealed)
    if pod.pod_class.share is not None and not ours and not pod.slots:
        held = attrs.evolve(held, requests=beside_shares(pod.pod_class), share=None)
    return attrs.evolve(held, leaving=pod.deleting)


def placed(
    pod: Pod, node: str, slots: int, hold: Hold, *, ours: bool = True, sealed: bool = True
) -> Holding:
    """What a pod holds on the node that it was given."""
    return Holding(
        uid=pod.uid,
        node=node,
        requests=pod.pod_class.requests,
        gpu=pod.pod_class.gpu,
        gpus=pod.pod_class.gpus,
        slots=slots,
        hold=hold,
        ours=ours,
        sealed=sealed,
        share=pod.pod_class.share,
    )


def charged(item: Rejected, *, sealed: bool) -> Holding | None:
    """What a pod holds that cannot be believed; None for nothing.

    Of a GPU of which nobody can read how much it has, it has all, where we gave it one.
    """
    charge = item.charge
    if charge is None or not charge.node:
        return None
    requests = charge.requests
    gpu, gpus = gpus_of(requests)
    if requests is not None and charge.shared and not gpus and sealed:
        requests = requests.plus(Resources.of({SHARED: DEVICE}))
        gpu, gpus = SHARED, 1
    return Holding(
        uid=item.uid,
        node=charge.node,
        requests=requests,
        gpu=gpu,
        gpus=gpus,
        slots=charge.slots if gpus else 0,
        hold=Hold.CONFIRMED,
        sealed=sealed,
    )
