"""A member as a process: writes a line for each partition that it owns, again and again, until it is ended.

    python -m tests.support.group_process TABLE LEASE_S PARTITIONS

A line is the boot clock before the question, the number and the epoch. So sorted by time, the epochs of a partition
never go back, whatever the processes were when: else two of them owned it at once.
"""

from __future__ import annotations

import asyncio
import sys

from coldstream.flow.boot_clock import boot_time_s
from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.groups.member import GroupMember

EVERY_S = 0.02


async def main(table: str, lease_s: float, partitions: int) -> None:
    numbers = range(partitions)
    async with GroupMember(ConsumerGroup("billing", table, lease_s=lease_s), "/", "orders", numbers) as member:
        following = asyncio.create_task(_follow(member))
        while not following.done():
            for number in numbers:
                now = boot_time_s()
                if member.owns(number):
                    print(f"{now:.6f} {number} {member.epoch(number)}", flush=True)  # noqa: T201
            await asyncio.sleep(EVERY_S)
        await following


async def _follow(member: GroupMember) -> None:
    async for assignment in member.assignments():
        for number in assignment.leaving:
            member.done_with(number)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
