"""Names of clusters, and which cluster may announce what."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidNameError, OtherClusterError
from coldstream.manifest.cluster import DIRECT_CLUSTER, NO_CLUSTER, Cluster, agents_cluster, check_cluster, cluster
from coldstream.manifest.stream import Incarnation, StreamId

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))


def test_no_agent_has_the_cluster_of_direct_streams() -> None:
    assert agents_cluster("direct-1") == "direct-1"
    with pytest.raises(InvalidNameError, match="without a broker"):
        agents_cluster(DIRECT_CLUSTER)
    with pytest.raises(InvalidNameError):
        agents_cluster("a/b")
    assert cluster(DIRECT_CLUSTER) == DIRECT_CLUSTER  # as the table has it


@pytest.mark.parametrize("text", ["a", "eu-central-1", "A0", "9", "x" * 63])
def test_a_name_of_letters_digits_and_hyphens_is_one(text: str) -> None:
    assert cluster(text) == text


@pytest.mark.parametrize(
    "text", ["", "-a", "a_b", "a.b", "a/b", "a b", "ä", "x" * 64, "*", "a?", "${x}", "a\n", "..", "="]
)
def test_what_could_mean_more_in_a_key_an_event_or_a_policy_is_none(text: str) -> None:
    with pytest.raises(InvalidNameError, match="cluster"):
        cluster(text)


@pytest.mark.parametrize("announcing", ["", "eu", "us"])
@pytest.mark.parametrize("bound", ["", "eu"])
def test_a_stream_that_is_bound_is_announced_by_its_cluster_alone(bound: str, announcing: str) -> None:
    if bound in {NO_CLUSTER, announcing}:
        check_cluster(STREAM, Cluster(bound), Cluster(announcing))
        return
    with pytest.raises(OtherClusterError) as caught:
        check_cluster(STREAM, Cluster(bound), Cluster(announcing))
    assert (caught.value.bound, caught.value.announcing) == (bound, announcing)
    assert "'orders' in vhost '/'" in str(caught.value)
    assert "an archive each" in str(caught.value)
