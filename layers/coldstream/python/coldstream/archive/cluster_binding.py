"""The binding of a stream's names to one cluster: it holds announcements to it, and binds streams that have none."""

from __future__ import annotations

from coldstream.manifest.cluster import NO_CLUSTER, Cluster, check_cluster
from coldstream.manifest.stream import StreamId
from coldstream.store.control import ControlObjects
from coldstream.store.ports import ManifestTable


def claim(table: ManifestTable, control: ControlObjects, stream: StreamId, announcing: Cluster) -> None:
    """Bind a stream to the cluster that announces it, unless it is bound.

    Cost: two GetItems; to bind, a PutItem, and a PUT of the control object that says so. To be refused, a PUT, too.

    Raises OtherClusterError if it is bound to another cluster.
    """
    head = table.head(stream.incarnation)
    # The announced names prove nothing: an agent could announce another cluster's incarnation under free names.
    archived = stream if head is None else head.stream
    bound = table.bound_cluster(archived.vhost, archived.name)
    if bound == NO_CLUSTER != announcing:
        # Before the binding: who dies after it finds the stream bound, and the bucket would never be told.
        control.write_cluster(archived.vhost, archived.name, announcing)
        # Two clusters may get here at once. The conditional write lets one win, and returns the winner to both.
        bound = table.bind_cluster(archived.vhost, archived.name, announcing)
    if bound not in {NO_CLUSTER, announcing}:
        # The note may be this one's own, written just now over the winner's, or by an attempt that died after that.
        control.write_cluster(archived.vhost, archived.name, bound)
    check_cluster(archived, bound, announcing)
