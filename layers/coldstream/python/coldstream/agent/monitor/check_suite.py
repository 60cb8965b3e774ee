"""All that an agent needs, tried before it runs.

What is asked for of AWS and the broker is what the agent asks for. Nothing is archived or announced, and nothing is
left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from coldstream.agent.monitor.check import Check
from coldstream.agent.monitor.check_aws import check_aws
from coldstream.agent.monitor.check_broker import check_broker
from coldstream.agent.monitor.check_disk import check_disk
from coldstream.agent.options import AgentOptions


async def check_agent(options: AgentOptions, environment: Mapping[str, str]) -> list[Check]:
    """Check everything that an agent with these options needs. Takes seconds; minutes where a service is silent."""
    found = await asyncio.gather(
        asyncio.to_thread(check_disk, options),
        check_broker(options),
        asyncio.to_thread(check_aws, options.environment(environment)),
    )
    return [check for checks in found for check in checks]
