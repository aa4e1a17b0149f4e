"""What a daemon knows of its cluster, to be compared with what another one knows."""

from __future__ import annotations

from gpusched.app import App


def daemon_knowledge(app: App) -> dict[str, object]:
    """What a decision rests on that follows from the objects alone, by a name for each part."""
    snapshot = app.cache.take_snapshot(0.0)
    nodes = snapshot.nodes
    found: dict[str, object] = {}
    for row, node in enumerate(nodes.nodes):
        sums = {
            f"{what} {name}": int(amounts[row, column])
            for what, amounts in (
                ("allocatable", nodes.allocatable),
                ("used", nodes.used),
                ("leaving", nodes.leaving),
                ("foreign", nodes.foreign),
            )
            for name, column in nodes.columns.items()
            if amounts[row, column]
        }
        found[f"node {node.name}"] = (sums, nodes.free_slots[row], nodes.shared.get(row))
        found[f"pods on {node.name}"] = sorted(pod.uid for pod in snapshot.pods_by_node.pods[row])
    for name, queue in snapshot.queues.queues.items():
        found[f"queue {name}"] = (queue.path, queue.leaf, queue.error, queue.allocated)
    return found


def differences(old: dict[str, object], new: dict[str, object]) -> list[str]:
    """A sentence for each part in which two pictures differ."""
    return [
        f"{name} is {old.get(name)} to who saw all of it, {new.get(name)} to a new daemon"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
