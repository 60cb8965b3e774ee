"""All checks of what an agent needs, made before it runs.

They ask of AWS and the broker what the agent asks. They archive and announce nothing, and leave nothing behind.
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
    """Check everything that an agent with these options needs. Takes seconds; minutes if a service does not answer."""
    by_part = await asyncio.gather(
        asyncio.to_thread(check_disk, options),
        check_broker(options),
        asyncio.to_thread(
            check_aws, options.environment(environment), has_recovery_log=options.quiet_span_s is not None
        ),
    )
    return [check for checks in by_part for check in checks]
