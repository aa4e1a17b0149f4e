"""Devices of claims on a whole daemon: charged to queues, taken back for others, and held for them."""

from __future__ import annotations

from typing import Any

from tests.daemon.devices.device_objects import bound, claimant, classes, publish

QUEUES = "queues.scheduling.gpusched.io"
GPU = "nvidia.com/gpu"
CONFIG = """
deviceQuota:
- {deviceClass: gpu, amounts: {nvidia.com/gpu: 1}}
"""


def queue(w: Any, name: str, **limits: str) -> None:
    """A queue with amounts of GPUs."""
    spec = {kind: {GPU: amount} for kind, amount in limits.items()}
    body = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**body, "metadata": {"name": name}, "spec": spec})


def gang(w: Any, name: str, pods: int, **group: Any) -> None:
    """A gang whose pods have a device each."""
    w.group(name, minMember=pods, **group)
    for number in range(pods):
        claimant(w, f"{name}-{number}", labels={"gpusched.io/pod-group": name})


def charged(w: Any, name: str) -> str:
    """GPUs that a queue holds, as its status tells."""
    status = w.client.get(QUEUES, "", name).get("status") or {}
    return status.get("allocated", {}).get(GPU, "0")


async def a_daemon_that_counts(w: Any, tmp_path: Any, *, devices: int) -> Any:
    """One node with devices, and a daemon that counts them as GPUs."""
    file = tmp_path / "gpusched.yaml"
    file.write_text(CONFIG)
    await w.start(nodes=1)
    publish(w, "node-0", devices)
    classes(w)
    return w.daemon(config_file=str(file))


def test_a_queue_is_charged_for_devices_and_limited_by_them(play, tmp_path):
    async def life(w: Any) -> None:
        await a_daemon_that_counts(w, tmp_path, devices=8)
        queue(w, "team", capability="3")
        gang(w, "first", 2, queue="team")
        await w.until(lambda: len(bound(w)) == 2)
        await w.until(lambda: charged(w, "team") == "2")
        gang(w, "second", 2, queue="team")
        await w.until(lambda: w.condition("second").get("reason") == "WaitingForQuota")
        assert w.condition("second")["message"] == (
            f"needs 2 {GPU} for 2 devices of class gpu; queue team holds 2 of its capability of 3"
        )
        w.client.delete("pods", "default", "first-0")
        w.client.delete("pods", "default", "first-1")
        await w.until(lambda: len(bound(w)) == 2 and "second-0" in bound(w))
        await w.until(lambda: charged(w, "team") == "2")

    play(life)


def test_devices_are_taken_back_and_held_over_a_restart(play, tmp_path):
    """The daemon dies when the victims leave; its successor gives their devices to nobody else."""

    async def life(w: Any) -> None:
        w.check_journal = (
            False  # status may be said again by a daemon that does not know it was said
        )
        first = await a_daemon_that_counts(w, tmp_path, devices=2)
        queue(w, "owner", deserved="2")
        queue(w, "guest", deserved="0")
        gang(w, "lent", 2, queue="guest")
        await w.until(lambda: len(bound(w)) == 2)
        gang(w, "due", 2, queue="owner")
        await w.until(lambda: w.condition("due").get("reason") == "PreemptionInProgress")
        first.kill()
        gang(w, "thief", 1, queue="owner")
        w.daemon(config_file=str(tmp_path / "gpusched.yaml"))
        await w.until(lambda: {"due-0", "due-1"} <= set(bound(w)), within=120)
        assert not {"thief-0", "lent-0", "lent-1"} & set(bound(w))
        await w.until(lambda: charged(w, "owner") == "2" and charged(w, "guest") == "0")

    play(life)
