"""The binding of a stream's names to one cluster: it holds announcements to it, and binds streams that have none."""

from __future__ import annotations

from coldstream.manifest.cluster import NO_CLUSTER, Cluster, check_cluster
from coldstream.manifest.stream import StreamId
from coldstream.store.control import ControlObjects
from coldstream.store.ports import ManifestTable


def claim(table: ManifestTable, control: ControlObjects, stream: StreamId, announcing: Cluster) -> None:
    """Bind a stream to the cluster that announces it, unless it is bound.

    Cost: two GetItems; to bind, a PutItem, and a PUT of the control object that says so.

    Raises OtherClusterError if it is bound to another cluster.
    """
    head = table.head(stream.incarnation)
    # The announced names prove nothing: an agent could announce another cluster's incarnation under free names.
    archived = stream if head is None else head.stream
    bound = table.bound_cluster(archived.vhost, archived.name)
    if bound == NO_CLUSTER != announcing:
        # Two clusters may get here at once. The conditional write lets one win, and returns the winner to both.
        bound = table.bind_cluster(archived.vhost, archived.name, announcing)
        # After the binding, as only that tells which of the two won; both write the same.
        control.write_cluster(archived.vhost, archived.name, bound)
    check_cluster(archived, bound, announcing)
