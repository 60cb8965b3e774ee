"""All checks are of what the agent would run with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coldstream.agent.monitor import check_suite as checks_module
from coldstream.agent.monitor.check import Check
from coldstream.agent.monitor.check_suite import check_agent
from coldstream.agent.options import AgentOptions
from coldstream.live.address import BrokerAddress


async def test_the_archive_is_checked_for_the_cluster_of_the_options(tmp_path: Path, monkeypatch) -> None:
    seen: list[str] = []

    def check_aws(environment: Mapping[str, str]) -> list[Check]:
        seen.append(environment["COLDSTREAM_CLUSTER"])
        return []

    async def check_broker(_: AgentOptions) -> list[Check]:
        return []

    monkeypatch.setattr(checks_module, "check_aws", check_aws)
    monkeypatch.setattr(checks_module, "check_broker", check_broker)
    address = BrokerAddress.from_uri("rabbitmq-stream://user:secret@localhost")
    (tmp_path / "stream").mkdir()
    for cluster in (None, "north"):
        options = AgentOptions(tmp_path / "state", address, tmp_path / "stream", cluster=cluster)
        await check_agent(options, {"COLDSTREAM_CLUSTER": "south"})
    assert seen == ["south", "north"]
