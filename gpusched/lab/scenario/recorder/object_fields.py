"""What the recorder and the watch read from API objects: amounts, names, conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from gpusched.api.devices.slots import parse_slots, slot_numbers
from gpusched.api.meta.gpu_resources import SLICES_OF_A_GPU, gpu_resources
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.base.classes import frozen
from gpusched.testing.invariants import pod_requests

Obj: TypeAlias = Mapping[str, Any]
GROUP_LABEL: Final = "gpusched.io/pod-group"
QUEUE_LABEL: Final = "gpusched.io/queue"
MIN_MEMBER: Final = "gpusched.io/min-member"
FRACTION: Final = "gpusched.io/gpu-fraction"
GPU_MEMORY: Final = "gpusched.io/gpu-memory"
DEFAULT_QUEUE: Final = "default"
_GROUP_KEYS: Final = (GROUP_LABEL, "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name")
_QUEUE_KEYS: Final = (
    QUEUE_LABEL,
    "kai.scheduler/queue",
    "kueue.x-k8s.io/queue-name",
    "scheduling.volcano.sh/queue-name",
)
_MEBI: Final = 2**20
_FINITE: Final = ("gpusched.io/run-for", "gpusched.io/fail-after")


@frozen(slots=True)
class PodGpuRequest:
    """What a pod takes.

    Attributes:
        gpus: thousandths of a GPU; slices of one count by their sevenths.
        cpu: thousandths of a core.
        memory: MiB.
        whole: each resource in base units (``cpu`` in thousandths), as nodes offer it.
        share: thousandths of one GPU that it shares with others; 0 for none.
    """

    gpus: int
    cpu: int
    memory: int
    whole: Mapping[str, int]
    share: int


def pod_gpu_request(pod: Obj, *, gpu_memory: int) -> PodGpuRequest:
    """What a pod takes.

    Args:
        pod: as the API gives it.
        gpu_memory: MiB of a GPU where it is, for those that ask by memory; 0 where not known.
    """
    whole = pod_requests(pod)
    said = labels_and_annotations(pod)
    share = 0
    if FRACTION in said:
        share = base_amount(said[FRACTION], power=3)
    elif GPU_MEMORY in said:
        wanted = base_amount(said[GPU_MEMORY])
        share = -(-wanted * 1000 // (gpu_memory * _MEBI)) if gpu_memory else 1000
    return PodGpuRequest(
        gpus=gpus_of_amounts(whole) + share,
        cpu=whole.get("cpu", 0),
        memory=-(-whole.get("memory", 0) // _MEBI),
        whole=whole,
        share=share,
    )


def gpus_of_amounts(amounts: Mapping[str, int]) -> int:
    """Thousandths of GPUs in base amounts of resources."""
    total = 0
    for name, number in amounts.items():
        if name in gpu_resources().whole:
            total += 1000 * number
        elif sevenths := gpu_resources().sevenths(name):
            total += 1000 * sevenths * number // SLICES_OF_A_GPU
    return total


def base_amounts(listed: Any) -> dict[str, int]:
    """A ResourceList in base units, ``cpu`` in thousandths; what is no quantity is left out."""
    found = {}
    for name, text in (listed or {}).items():
        try:
            found[name] = parse_quantity(str(text), power=3 if name == "cpu" else 0)
        except QuantityError:
            continue
    return found


def gpus_of(listed: Any) -> int:
    """Thousandths of GPUs in a ResourceList, fractions included."""
    total = 0
    for name, text in (listed or {}).items():
        if name in gpu_resources().whole:
            total += base_amount(str(text), power=3)
        elif sevenths := gpu_resources().sevenths(name):
            total += base_amount(str(text), power=3) * sevenths // SLICES_OF_A_GPU
    return total


def gpu_limit(listed: Any) -> int | None:
    """The same of a limit; None where it does not speak of GPUs."""
    if not any(
        name in gpu_resources().whole or gpu_resources().sevenths(name) for name in listed or ()
    ):
        return None
    return gpus_of(listed)


def base_amount(text: str, *, power: int = 0) -> int:
    """A quantity; 0 for a text that is none, which the daemon tells of itself."""
    try:
        return parse_quantity(text, power=power)
    except QuantityError:
        return 0


def labels_and_annotations(obj: Obj) -> dict[str, str]:
    """Labels and annotations in one."""
    meta = obj["metadata"]
    return {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}


def group_of(said: Mapping[str, str]) -> str:
    """Name of the PodGroup that labels or annotations name; empty for none."""
    return next((said[key] for key in _GROUP_KEYS if said.get(key)), "")


def queue_of(said: Mapping[str, str]) -> str:
    """Name of the queue; empty for none."""
    return next((said[key] for key in _QUEUE_KEYS if said.get(key)), "")


def controller_reference(obj: Obj) -> Obj | None:
    """The owner reference of the controller."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def find_condition(obj: Obj, kind: str) -> Obj | None:
    """A condition of the status by its type."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            return dict(each)
    return None


def is_true(obj: Obj, kind: str) -> bool:
    """Whether a condition is True."""
    found = find_condition(obj, kind)
    return found is not None and found.get("status") == "True"


def recorded_slots(pod: Obj) -> tuple[int, ...]:
    """Numbers of the GPUs that were written on it; none where the text is no list of them."""
    text = (pod["metadata"].get("annotations") or {}).get("gpusched.io/slots", "")
    try:
        return slot_numbers(parse_slots(text))
    except InvalidObject:
        return ()


def exit_code(pod: Obj) -> int:
    """The first exit code of a container that is not 0."""
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        code = ((each.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        if code:
            return int(code)
    return 0


def is_endless(pod: Obj, *, of_job: bool) -> bool:
    """Whether it runs until it is deleted, by the rules of kwok-scenarios/README.md."""
    said = labels_and_annotations(pod)
    if any(key in said for key in _FINITE) or "gpusched.io/fail-chance" in said:
        return False
    if "gpusched.io/fail-on-attempt" in said:
        return False
    words = [word for each in pod["spec"]["containers"] for word in _words(each)]
    if "infinity" in words:
        return True
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return True
    return not of_job and "sleep" not in words


def _words(container: Obj) -> Iterable[str]:
    for text in (*(container.get("command") or ()), *(container.get("args") or ())):
        yield from str(text).split()


def object_name(obj: Obj) -> str:
    """``namespace/name``, or the name where there is no namespace."""
    meta = obj["metadata"]
    place = meta.get("namespace", "")
    return f"{place}/{meta['name']}" if place else str(meta["name"])
