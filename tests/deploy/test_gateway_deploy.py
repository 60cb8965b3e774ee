"""What operators of gateways are given names only options, metrics, ports and files that there are."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from coldstream.cli.main import app
from coldstream.gateway.process.metrics import metrics_text
from coldstream.gateway.process.supervisor import KILL_AFTER_S
from coldstream.units import parse_duration, parse_size
from tests.deploy.test_deploy import DEPLOY, MATCHER, OF_PROMETHEUS, PACKAGE, ROOT, SELECTOR, TARGET_LABELS, TEMPLATED
from tests.support.gateway_status import gateway_status

KUBERNETES = DEPLOY / "gateway/kubernetes"
SERVICE = DEPLOY / "coldstream-gateway.service"
CONTAINERFILE = DEPLOY / "gateway/Containerfile"
CONTAINERFILES = [DEPLOY / "Containerfile", CONTAINERFILE]
MAX_PORT_NAME = 15


@cache
def scraped() -> dict[str, dict[str, set[str]]]:
    """Return the metrics of a gateway, with their labels and the labels' values."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics_text(gateway_status(), broker_up=True, archive_up=True)):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


@cache
def alerts() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus/coldstream-gateway.rules.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana/coldstream-gateway.json").read_text())
    return found


def expressions() -> list[Any]:
    found = [pytest.param(rule["expr"], id=name) for name, rule in alerts().items()]
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            found.append(pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}"))  # noqa: PERF401
    return found + [
        pytest.param(variable["definition"], id=f"variable {variable['name']}")
        for variable in dashboard()["templating"]["list"]
        if variable["type"] == "query"
    ]


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    selectors = list(SELECTOR.finditer(expression))
    assert selectors
    for selector in selectors:
        name = selector["metric"]
        labels = OF_PROMETHEUS.get(name) or scraped()[name].keys() | TARGET_LABELS
        for matcher in MATCHER.finditer(selector["matchers"] or ""):
            assert matcher["label"] in labels, f"{name} has no label {matcher['label']}"
    for label in re.findall(r"sum by \((\w+)\)", expression):
        assert all(label in scraped()[selector["metric"]] for selector in selectors)


@pytest.mark.parametrize("rule", [pytest.param(rule, id=name) for name, rule in alerts().items()])
def test_an_alert_says_what_and_where_by_labels_that_it_has(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}
    labels = {label for name in re.findall(r"coldstream_\w+", rule["expr"]) for label in scraped()[name]}
    assert set(TEMPLATED.findall(" ".join(rule["annotations"].values()))) <= labels | TARGET_LABELS


def test_every_alert_is_on_the_page_and_no_other() -> None:
    page = (ROOT / "docs/gateway.md").read_text()
    assert set(re.findall(r"`(ColdstreamGateway\w+)`", page)) == set(alerts())


def test_every_metric_is_seen_somewhere() -> None:
    text = json.dumps(dashboard()) + str(alerts())
    unseen = {name for name in scraped() if not re.search(rf"\b{name}\b", text)}
    assert unseen == {
        "coldstream_gateway_archive_chunks_total",
        "coldstream_gateway_connections_total",
        "coldstream_gateway_processes",
    }


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_dashboard_can_be_given_any_data_source() -> None:
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    text = (DEPLOY / "grafana/coldstream-gateway.json").read_text()
    assert set(re.findall(r"\$\{?([a-z]+)\}?", text)) == variables
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in SERVICE.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def option(arguments: list[str], name: str) -> list[str]:
    """Return the values of an option in a container's arguments, which are of the form --name=value."""
    return [value for head, _, value in (one.partition("=") for one in arguments) if head == name]


def check_options(arguments: list[str]) -> None:
    command = get_command(app).commands["gateway"]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {one.partition("=")[0] for one in arguments if one.startswith("-")} <= known


def test_the_unit_waits_for_ready_and_gives_time_to_drain() -> None:
    assert unit()["Type"] == ["notify"]
    assert unit()["KillMode"] == ["mixed"]
    assert float(unit()["TimeoutStopSec"][0]) > 30 + KILL_AFTER_S
    assert unit()["Restart"] == ["always"]
    assert unit()["DynamicUser"] == ["yes"]


def test_what_the_heap_keeps_is_bounded_wherever_it_is_deployed() -> None:
    # Before the file, which may say otherwise.
    text = SERVICE.read_text()
    assert text.index("Environment=MALLOC_ARENA_MAX=2\n") < text.index("EnvironmentFile=")
    assert re.search(r"^ENV .*\bMALLOC_ARENA_MAX=2\b", CONTAINERFILE.read_text(), re.MULTILINE)


def test_a_container_is_given_time_to_drain() -> None:
    (given,) = re.findall(r"--stop-timeout (\d+)", CONTAINERFILE.read_text())
    assert float(given) > 30 + KILL_AFTER_S


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    copied = tmp_path / SERVICE.name
    copied.write_text(SERVICE.read_text().replace("/opt/coldstream/bin/coldstream", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copied], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if SERVICE.name in line] == []


def test_every_variable_of_the_example_is_read_by_somebody_and_its_options_are_there() -> None:
    text = (DEPLOY / "gateway.env.example").read_text()
    variables = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", text, re.MULTILINE))
    readers = "".join(path.read_text() for path in PACKAGE.rglob("*.py")) + " ".join(unit()["ExecStart"])
    assert variables.keys() >= {"COLDSTREAM_BUCKET", "COLDSTREAM_TABLE", "COLDSTREAM_GATEWAY_OPTIONS"}
    assert {name for name in variables if not name.startswith("AWS_") and name not in readers} == set()
    check_options(shlex.split(variables["COLDSTREAM_GATEWAY_OPTIONS"]))


@cache
def manifests(name: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a file, by kind."""
    found = list(yaml.safe_load_all((KUBERNETES / name).read_text()))
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


def containers() -> list[Any]:
    gateway = manifests("gateway.yaml")["Deployment"]["spec"]["template"]["spec"]
    sidecar = manifests("sidecar.yaml")["StatefulSet"]["spec"]["template"]["spec"]
    return [pytest.param(gateway, id="gateway"), pytest.param(sidecar, id="sidecar")]


@pytest.mark.parametrize("pod", containers())
def test_a_container_has_options_and_ports_that_fit_together(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    check_options(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert all(len(name) <= MAX_PORT_NAME for name in ports)
    entry = next(line for line in CONTAINERFILE.read_text().splitlines() if line.startswith("ENTRYPOINT"))
    admin = int(entry.rpartition(":")[2].strip('"]'))
    (listen,) = option(container["args"], "--listen")
    assert set(ports.values()) == {admin, int(listen.rpartition(":")[2])}
    for probe, path in (("readinessProbe", "/healthz"), ("livenessProbe", "/livez")):
        asked = container[probe]["httpGet"]
        assert (asked["path"], ports[asked["port"]]) == (path, admin)


@pytest.mark.parametrize("pod", containers())
def test_a_pod_has_time_to_drain_and_memory_for_what_it_may_hold(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    (drain,) = option(container["args"], "--drain")
    pause_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= pause_s + parse_duration(drain) + KILL_AFTER_S
    (memory,) = option(container["args"], "--memory")
    limit = parse_size(container["resources"]["limits"]["memory"] + "B")
    cores = int(container["resources"]["limits"]["cpu"])
    assert limit >= parse_size(memory) + (cores + 1) * 100 * (1 << 20)


@pytest.mark.parametrize("pod", containers())
def test_a_container_has_no_rights(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    held = {**pod.get("securityContext", {}), **container["securityContext"]}
    assert held["runAsNonRoot"] is held["readOnlyRootFilesystem"] is True
    assert held["allowPrivilegeEscalation"] is False
    assert held["capabilities"] == {"drop": ["ALL"]}
    assert held["seccompProfile"] == {"type": "RuntimeDefault"}
    user = re.search(r"^USER (\d+):(\d+)$", CONTAINERFILE.read_text(), re.MULTILINE)
    assert user is not None
    assert (held["runAsUser"], held["runAsGroup"]) == tuple(map(int, user.groups()))


def test_the_service_and_the_budget_find_the_pods() -> None:
    found = manifests("gateway.yaml")
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert found[kind]["spec"]["selector"]["matchLabels"] == labels
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    (port,) = found["Service"]["spec"]["ports"]
    assert port["targetPort"] in {one["name"] for one in container["ports"]}
    (advertised,) = option(container["args"], "--advertise")
    assert advertised == f"{found['Service']['metadata']['name']}.default.svc:{port['port']}"
    assert container["envFrom"] == [{"configMapRef": {"name": found["ConfigMap"]["metadata"]["name"]}}]
    spec = found["Deployment"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]


def test_the_sidecar_advertises_the_port_that_it_listens_at() -> None:
    found = manifests("sidecar.yaml")
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    (listen,) = option(container["args"], "--listen")
    port = listen.rpartition(":")[2]
    nodes = [one.removeprefix("--node=").partition("=") for one in container["args"] if one.startswith("--node=")]
    assert nodes
    for broker, _, gateway in nodes:
        assert gateway == f"{broker.rpartition(':')[0]}:{port}"
        assert f".{found['Service']['metadata']['name']}.default.svc" in broker
    assert found["Service"]["spec"]["ports"] == [{"name": "coldstream", "port": int(port), "targetPort": "coldstream"}]


@pytest.mark.parametrize("containerfile", CONTAINERFILES, ids=["agent", "gateway"])
def test_what_a_container_is_built_of_is_enough_for_the_wheel(containerfile: Path, tmp_path: Path) -> None:
    lines = containerfile.read_text().replace("\\\n", "").splitlines()
    for line in lines:
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            for source in sources:
                found, to = ROOT / source, tmp_path / target
                if found.is_dir():
                    shutil.copytree(found, to, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(found, to)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").glob("*.whl"))) == 1


def test_the_gateways_container_is_pinned_and_has_no_user_of_its_machine() -> None:
    lines = CONTAINERFILE.read_text().replace("\\\n", "").splitlines()
    installs = [step for line in lines if line.startswith("RUN") for step in line.split("&&") if " -r " in step]
    assert installs
    assert all("--require-hashes" in step for step in installs)
    assert any("requirements-gateway.txt" in step for step in installs)
