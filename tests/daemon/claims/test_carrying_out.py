"""Room is made as decided: promise first, then victims; whatever happens in between."""

from __future__ import annotations


def test_the_promise_is_written_before_anybody_is_told_to_go(play, scene):
    """Nominations of all members, then DisruptionTarget of all victims, then evictions; bound."""

    async def scenario(w):
        await scene.low_and_high(w)
        victims = [pod["metadata"]["name"] for pod in w.pods("low")]
        scene.gang(w, "high", 2, high=True)
        await w.until(lambda: len(w.running("high")) == 2)
        order = []
        for end, name, body in scene.writes(w, "/status", "/eviction"):
            status = body.get("status") or {}
            types = [c["type"] for c in status.get("conditions", ())]
            if status.get("nominatedNodeName"):
                (condition,) = status["conditions"]
                assert condition["reason"] == "PreemptionInProgress"
                assert condition["lastTransitionTime"]
                order.append("promise")
            elif "DisruptionTarget" in types:
                assert name in victims
                assert scene.preempted in status["conditions"][0]["message"]
                order.append("told")
            elif end == "/eviction":
                order.append("evicted")
        assert order == ["promise"] * 2 + ["told"] * 2 + ["evicted"] * 2
        assert sorted(scene.evictions(w)) == sorted(victims)
        assert all(not p["status"].get("nominatedNodeName") for p in w.pods("high"))

    play(scenario)


def test_victims_are_told_by_whom_in_events_conditions_and_metrics(play, scene):
    """The same sentence on pods and PodGroup; Preempted is False again once the gang runs."""

    async def scenario(w):
        first = await scene.low_and_high(w)
        scene.gang(w, "high", 2, high=True)
        await w.until(lambda: w.condition("low", "Preempted").get("status") == "True")
        said = w.condition("low", "Preempted")
        assert said["reason"] == "Preempted"
        assert scene.preempted in said["message"]
        await w.until(lambda: len(w.running("high")) == 2)
        await w.clock.sleep(5)
        told = [e for e in w.client.list("events") if e["reason"] == "Preempted"]
        assert {e["involvedObject"]["kind"] for e in told} == {"Pod", "PodGroup"}
        assert {e["message"] for e in told} == {said["message"]}
        text = first.app.telemetry.render().decode()
        assert 'gpusched_evictions_total{action="preempt",reason="Preempted"} 2.0' in text
        lost = next(x for x in text.splitlines() if x.startswith("gpusched_evicted_gpu_seconds"))
        assert float(lost.split()[-1]) > 0
        w.node("node-8")
        w.node("node-9")
        await w.until(lambda: len(w.running("low")) == 2)
        await w.until(lambda: w.condition("low", "Preempted").get("status") == "False")

    play(scenario)


def test_nobody_takes_the_room_while_it_is_being_freed(play, scene):
    """A gang that would fit the first freed node waits; the promise is kept."""

    async def scenario(w):
        await scene.low_and_high(w)
        scene.gang(w, "high", 2, high=True)
        await w.until(lambda: scene.evictions(w))
        scene.gang(w, "small", 1)
        await w.until(lambda: len(w.running("high")) == 2)
        assert w.bound("small") == []
        assert len(scene.evictions(w)) == 2

    play(scenario)


def test_a_victim_that_ends_by_itself_is_left_where_it_counts_for_its_gang(play, scene):
    """It succeeds before the server takes evictions, and is none of those that its gang lacks."""

    async def scenario(w):
        # given a gang of two whose second member ends soon, and a server that takes no eviction before
        def busy(_method, path):
            ends = path.endswith("/eviction")
            return "503" if ends and len(w.running("low")) == 2 and not ended() else ""

        def ended():
            return any(pod["status"].get("phase") == "Succeeded" for pod in w.pods("low"))

        await w.start(nodes=2)
        scene.priority(w, "high", 1000)
        w.daemon(fault=busy)
        w.group("low", minMember=2)
        for number, run_for in enumerate(("10h", "30s")):
            notes = {"gpusched.io/run-for": run_for}
            w.pod(f"low-{number}", labels={"gpusched.io/pod-group": "low"}, annotations=notes)
        await w.until(lambda: len(w.running("low")) == 2)

        # when both are to leave for another one, and the second has succeeded meanwhile
        scene.gang(w, "high", 2, high=True, run_for="60s")
        await w.until(ended)
        await w.until(lambda: len(w.running("high")) == 2, within=90)
        await w.clock.sleep(30)

        # then it is still there, and a new member is enough for the gang
        assert scene.evictions(w) == ["low-0"]
        (kept,) = w.pods("low")
        assert kept["status"]["phase"] == "Succeeded"
        w.pod("low-2", labels={"gpusched.io/pod-group": "low"})
        await w.until(lambda: len(w.running("low")) == 2, within=90)

    play(scenario)


def test_a_refused_budget_ends_the_claim_without_more_victims(play, scene):
    """Nobody else is asked to go; in the end the promise is withdrawn and the victim runs on."""

    async def scenario(w):
        await scene.low_and_high(w)
        before = scene.uids(w.pods("low"))
        spec = {
            "minAvailable": 2,
            "selector": {"matchLabels": {"gpusched.io/pod-group": "low"}},
        }
        w.client.create(
            "poddisruptionbudgets.policy",
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "keep", "namespace": "default"},
                "spec": spec,
            },
        )
        await w.clock.sleep(5)
        scene.gang(w, "high", 2, high=True)
        await w.until(lambda: any(p["status"].get("nominatedNodeName") for p in w.pods("high")))
        scene.gang(w, "later", 1)
        await w.clock.sleep(30)
        assert scene.uids(w.pods("low")) == before
        await w.clock.sleep(60)
        assert scene.uids(w.pods("low")) == before
        assert scene.evictions(w) == []

    play(scenario)


def test_a_promise_that_is_gone_leaves_no_trace(play, scene):
    """The gang shrinks to what is free: nominatedNodeName and its reason go with the promise."""

    async def scenario(w):
        await scene.low_and_high(w)
        w.daemons[0].fault = lambda _m, path: "500" if path.endswith("/eviction") else ""
        scene.gang(w, "high", 2, high=True)

        def promised():
            return [p for p in w.pods("high") if p["status"].get("nominatedNodeName")]

        await w.until(lambda: len(promised()) == 2)
        w.client.patch(
            "podgroups.scheduling.gpusched.io", "default", "high", {"spec": {"minMember": 9}}
        )
        await w.until(lambda: not promised(), within=120)
        assert w.condition("high")["reason"] == "NotEnoughMembers"

    play(scenario)


def test_a_nomination_that_fails_costs_nobody_his_place(play, scene):
    """The pods cannot be promised anything: nobody is told to go, nobody is evicted."""

    async def scenario(w):
        first = await scene.low_and_high(w)

        tries = []

        def fault(_method, path):
            if "/pods/high-" not in path or not path.endswith("/status"):
                return ""
            tries.append(w.clock.now())
            return "422"

        first.fault = fault
        before = scene.uids(w.pods("low"))
        scene.gang(w, "high", 2, high=True)
        await w.clock.sleep(40)
        assert scene.uids(w.pods("low")) == before
        assert scene.evictions(w) == []
        said = [b for _, name, b in scene.writes(w, "/status") if name.startswith("low-")]
        assert not any(
            c["type"] == "DisruptionTarget" for b in said for c in b["status"]["conditions"]
        )
        assert 4 <= len(tries) < 60, "it is tried again, later each time"
        first.fault = lambda _m, _p: ""
        await w.until(lambda: len(w.running("high")) == 2)

    play(scenario)


def test_a_job_that_ends_as_a_whole_is_paused(play, scene):
    """It is suspended, not shot; it goes on when there is room again."""

    async def scenario(w):
        await w.start(nodes=2)
        scene.priority(w, "high", 1000)
        w.client.create(
            "queues.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "default"},
                "spec": {},
            },
        )
        w.daemon()
        made = w.job("low", 2)
        label = {"metadata": {"labels": {"gpusched.io/queue": "default"}}}
        w.client.patch("jobs.batch", "default", "low", label)
        del made
        await w.until(lambda: len(w.running()) == 2)
        scene.gang(w, "high", 2, high=True)
        await w.until(lambda: len(w.running("high")) == 2)
        assert scene.evictions(w) == []
        assert w.client.get("jobs.batch", "default", "low")["spec"]["suspend"] is True
        w.node("node-8")
        w.node("node-9")
        await w.until(lambda: len(w.running()) == 4)
        job = w.client.get("jobs.batch", "default", "low")
        assert job["spec"]["suspend"] is False
        assert not job["status"].get("failed")

    play(scenario)


def test_lost_leadership_begins_nothing(play, scene):
    """Another holds the lease before the promise is written: no victim is touched."""

    async def scenario(w):
        first = await scene.low_and_high(w)
        before = scene.uids(w.pods("low"))
        lease = w.client.list("leases.coordination.k8s.io", "gpusched-system")[0]
        first.fault = lambda _m, path: "slow" if path.endswith("/status") else ""
        scene.gang(w, "high", 2, high=True)
        await w.clock.sleep(0.5)
        spec = {**lease["spec"], "holderIdentity": "other", "leaseTransitions": 99}
        w.client.update("leases.coordination.k8s.io", {**lease, "spec": spec})
        await w.until(lambda: not first.leading)
        await w.clock.sleep(3)
        if first.leading is False:
            assert scene.uids(w.pods("low")) == before
            assert scene.evictions(w) == []

    play(scenario)
