"""Hold announcements to the cluster that their stream is bound to; bind streams that nobody is bound to."""

from __future__ import annotations

from coldstream.manifest.cluster import NO_CLUSTER, Cluster, check_cluster
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestTable


def claim(table: ManifestTable, stream: StreamId, announcing: Cluster) -> None:
    """Bind a stream to the cluster that announces it, if nobody was first. Cost: two GetItems; a PutItem to bind.

    What is bound are the names under which the incarnation is archived, whatever names are announced with it. Raises
    OtherClusterError when they are bound to another cluster.
    """
    head = table.head(stream.incarnation)
    archived = stream if head is None else head.stream
    bound = table.bound_cluster(archived.vhost, archived.name)
    if bound == NO_CLUSTER != announcing:
        bound = table.bind_cluster(archived.vhost, archived.name, announcing)
    check_cluster(archived, bound, announcing)
