"""All checks are of what the agent would run with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coldstream.agent.monitor import check_suite as checks_module
from coldstream.agent.monitor.check import Check
from coldstream.agent.monitor.check_suite import check_agent
from coldstream.agent.options import AgentOptions
from coldstream.live.address import BrokerAddress


async def test_the_archive_is_checked_for_the_cluster_and_the_log_of_the_options(tmp_path: Path, monkeypatch) -> None:
    seen: list[tuple[str, bool]] = []

    def check_aws(environment: Mapping[str, str], *, has_recovery_log: bool) -> list[Check]:
        seen.append((environment["COLDSTREAM_CLUSTER"], has_recovery_log))
        return []

    async def check_broker(_: AgentOptions) -> list[Check]:
        return []

    monkeypatch.setattr(checks_module, "check_aws", check_aws)
    monkeypatch.setattr(checks_module, "check_broker", check_broker)
    address = BrokerAddress.from_uri("rabbitmq-stream://user:secret@localhost")
    (tmp_path / "stream").mkdir()
    for cluster, logs in ((None, {}), ("north", {"max_lag_s": 60.0, "quiet_span_s": 3600.0})):
        options = AgentOptions(tmp_path / "state", address, tmp_path / "stream", cluster=cluster, **logs)
        await check_agent(options, {"COLDSTREAM_CLUSTER": "south"})
    assert seen == [("south", False), ("north", True)]
