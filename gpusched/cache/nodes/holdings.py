"""What pods hold, made from the pods: for the ledger."""

from __future__ import annotations

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.identity import Rejected
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import Pod
from gpusched.cache.ledger import CONFIRMED, Holding, HoldingState, gpus_of
from gpusched.cache.nodes.gpu_share_room import requests_beside_share
from gpusched.cache.nodes.pods_by_node import pod_for_pod_rules


def bound_holding(pod: Pod, *, ours: bool, sealed: bool) -> Holding:
    """What a pod with a node holds, as the API shows it; ``sealed`` when we wrote its slots.

    A share counts where we placed it. Other schedulers have their own ways to share GPUs, such
    as a pod that holds a whole one for all that share it.
    """
    of = pod.pod_class
    foreign_share = of.share is not None and not ours and not pod.slots
    return Holding(
        uid=pod.uid,
        node=pod.node,
        requests=requests_beside_share(of) if foreign_share else of.requests,
        gpu=of.gpu,
        gpus=of.gpus,
        slots=pod.slots,
        hold=CONFIRMED,
        leaving=pod.deleting,
        ours=ours,
        sealed=sealed,
        share=None if foreign_share else of.share,
    )


def assumed_holding(pod: Pod, node: str, slots: int, hold: HoldingState) -> Holding:
    """What a pod of ours holds on the node that it was given."""
    return Holding(
        uid=pod.uid,
        node=node,
        requests=pod.pod_class.requests,
        gpu=pod.pod_class.gpu,
        gpus=pod.pod_class.gpus,
        slots=slots,
        hold=hold,
        ours=True,
        sealed=True,
        share=pod.pod_class.share,
    )


def rejected_holding(item: Rejected, *, sealed: bool) -> Holding | None:
    """What a pod holds that cannot be believed; None for nothing.

    Where its share cannot be read, it holds the whole GPU that it was given.
    """
    charge = item.charge
    if charge is None or not charge.node:
        return None
    requests = charge.requests
    gpu, gpus = gpus_of(requests)
    if requests is not None and charge.shared and not gpus and sealed:
        requests = requests.plus(Resources.of({shared_resource(): DEVICE}))
        gpu, gpus = shared_resource(), 1
    return Holding(
        uid=item.uid,
        node=charge.node,
        requests=requests,
        gpu=gpu,
        gpus=gpus,
        slots=charge.slots if gpus else 0,
        hold=CONFIRMED,
        sealed=sealed,
    )


def is_where_assumed(known: Pod, item: Pod, held: Holding | None) -> bool:
    """Whether a pod is where the ledger has it and goes on: no place is won or lost."""
    return (
        held is not None
        and item.holds
        and (held.node, held.slots) == (item.node, item.slots)
        and pod_for_pod_rules(known) == pod_for_pod_rules(item)
    )
