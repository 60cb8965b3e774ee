"""Policies of retention: written to the table and, for a rebuild, to the bucket."""

from __future__ import annotations

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.policy import Policy, check_policy_name

_FIRST_OF_ALL = 1 << 53


def set_policy(stores: LifecycleStores, policy: Policy) -> None:
    """Write a policy, over the one of its name. It takes effect with the next run. Cost: three PUTs."""
    _protect(stores, policy.name)
    stores.table.put_policy(policy)
    stores.control.write_policy(policy)


def remove_policy(stores: LifecycleStores, name: str) -> bool:
    """Remove a policy, and return whether there was one. Raises InvalidSettingError for what is no policy's name.

    Cost: two PUTs and a DELETE.
    """
    check_policy_name(name)
    _protect(stores, name)
    is_there = stores.table.delete_policy(name)
    stores.control.delete_policy(name)
    return is_there


def _protect(stores: LifecycleStores, name: str) -> None:
    """Have the bucket say that everything is kept, until it says how the policy is.

    Any policy protects, from its own limits when it was stricter, and from policies of a lower priority. So whichever
    of both the table has when this process dies, a table that is rebuilt from the bucket lets nothing go that it keeps.
    """
    stores.control.write_policy(Policy(name, "*/*", _FIRST_OF_ALL))
