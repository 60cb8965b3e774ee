"""The wheel as people get it: what is in it, what each extra brings, and what is said where one is missing."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from coldstream.terminal.extras import EXTRAS
from tests.package.conftest import Built
from tests.support.broker import Broker
from tests.support.fixtures import do_without
from tests.support.golden import golden_logs
from tests.support.installed import ROOT, Installed, pip_lines
from tests.support.spark import find_spark

Install = Callable[..., Installed]

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
DISTRIBUTIONS = {"inotify-simple": "inotify_simple", "PyYAML": "yaml", "prometheus-client": "prometheus_client"}
"""What is imported by another name than it is installed by."""

OF_EXTRA = {
    "cli": ["coldstream.cli.main", "coldstream.cli.progress"],
    "consumer": ["coldstream.live", "coldstream.consumer"],
    "agent": ["coldstream.agent", "coldstream.cli"],
    "local": ["coldstream.local"],
    "replay": ["coldstream.replay", "coldstream.rows"],
    "console": ["coldstream.console", "coldstream.browse", "coldstream.cli.console"],
    "serve": ["coldstream.serve", "coldstream.web", "coldstream.cli.serve"],
    "gateway": ["coldstream.gateway", "coldstream.cli.gateway"],
    "shards": ["coldstream.routing", "coldstream.shards", "coldstream.queues", "coldstream.cli"],
    "spark": ["coldstream_spark"],
}
OURS = ("coldstream", "pyspark_coldstream/")
BELOW = {
    "agent": {"agent", "consumer", "cli"},
    "cli": {"cli"},
    "gateway": {"consumer"},
    "live": {"consumer"},
    "local": {"local"},
    "queues": {"shards"},
    "replay": {"replay", "shards"},
    "routing": {"shards"},
    "rows": {"replay"},
    "browse": {"console", "replay"},
    "console": {"console", "serve"},
    "serve": {"serve"},
    "web": {"console", "serve"},
    "shards": {"shards"},
    "spark": {"spark", "replay"},
}
"""Of which extras a package of ours imports modules, beside what is always there."""

PLAIN = [
    "format",
    "manifest",
    "store",
    "archive",
    "resolve",
    "runtime",
    "flow",
    "ingest",
    "read",
    "compact",
    "terminal",
    "retry",
    "lifecycle",
    "streams",
]

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}."):
        importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def page(built: Built) -> Message:
    """The wheel's metadata, whose body is the page that an index shows."""
    with zipfile.ZipFile(built.wheel) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(wheel.read(name).decode())


def test_an_index_is_told_who_what_and_where(page: Message) -> None:
    assert page["Author"]
    assert "rabbitmq" in page["Keywords"]
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} <= set(page.get_all("Classifier", []))
    assert len(page.get_all("Project-URL", [])) >= 1
    assert page["License-Expression"] == "Apache-2.0"


def test_no_link_of_the_page_on_an_index_leads_nowhere(page: Message) -> None:
    links = re.findall(r"\]\(([^)]*)\)", page.get_payload())
    assert [link for link in links if not link.startswith("https://")] == []
    assert "docs/agent.md is for people who run brokers" in page.get_payload()


def test_the_source_distribution_has_the_pages_that_the_readme_names(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {link for link in re.findall(r"\]\(([^)]*)\)", README) if not link.startswith("https://")} <= names


def test_the_wheel_has_its_types_the_jobs_and_the_template_with_its_functions(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
        assert {"coldstream/py.typed", "coldstream_spark/py.typed"} <= names
        for packed, source in (
            ("coldstream/local/sam/template.yaml", "template.yaml"),
            ("coldstream/local/sam/functions/upload/app.py", "functions/upload/app.py"),
            ("coldstream/local/sam/functions/resolver/app.py", "functions/resolver/app.py"),
            ("coldstream_spark/jobs/compact.py", "spark/compact.py"),
            ("coldstream_spark/jobs/maintain.py", "spark/maintain.py"),
            ("coldstream_spark/jobs/replay.py", "spark/replay.py"),
        ):
            assert wheel.read(packed) == (ROOT / source).read_bytes()
    assert not [name for name in names if name.endswith(".pyc") or not name.startswith(OURS)]


def test_every_module_of_an_extra_is_known_to_be_of_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        DISTRIBUTIONS.get(name, name): extra
        for extra, requirements in project["optional-dependencies"].items()
        if extra != "dev"
        for name in (re.split(r"[\[<>=]", requirement)[0] for requirement in requirements)
        if name != "coldstream"
    }
    assert declared == EXTRAS


def imported(path: Path) -> set[str]:
    """Return the packages of others that a module imports when it is imported."""
    tree = ast.parse(path.read_text())
    nodes = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    own = {"coldstream", "coldstream_spark", "pyspark_coldstream"}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - own


def test_what_is_imported_is_declared_and_not_there_by_chance() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = {re.split(r"[\[<>=]", requirement)[0].replace("-", "_") for requirement in project["dependencies"]} | {
        "botocore"
    }
    for root in (ROOT / "layers/coldstream/python/coldstream", ROOT / "spark"):
        for path in root.rglob("*.py"):
            package = "spark" if root.name == "spark" else path.relative_to(root).parts[0]
            extras = BELOW.get(package, set())
            assert {EXTRAS.get(name, "plain") for name in imported(path) - plain - {"py4j"}} <= extras, path


def test_plain_it_is_what_the_functions_and_a_reader_need(install: Install) -> None:
    packages = [f"coldstream.{name}" for name in PLAIN]
    done = install().run("python", "-c", IMPORT_ALL, *packages)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("extra", OF_EXTRA)
def test_an_extra_brings_all_that_its_modules_import(extra: str, install: Install) -> None:
    done = install(extra).run("python", "-W", "ignore", "-c", IMPORT_ALL, *OF_EXTRA[extra])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [("coldstream",), ("python", "-m", "coldstream")])
def test_plain_the_command_says_how_to_get_it(command: tuple[str, ...], install: Install) -> None:
    done = install().run(*command, "--version")
    assert done.returncode == 2
    assert done.stderr == (
        "coldstream: this needs the package typer, which comes with: pip install 'coldstream[cli]'\n"
    )


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("from coldstream import BlockingConsumer", "consumer"),
        ("from coldstream import Consumer", "consumer"),
        ("import coldstream_spark", "spark"),
    ],
)
def test_plain_an_import_says_how_to_get_it(statement: str, extra: str, install: Install) -> None:
    done = install().run("python", "-c", statement)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("coldstream.errors.MissingExtraError: this needs the package ")
    assert last.endswith(f"pip install 'coldstream[{extra}]'")
    tried = install().run("python", "-c", f"try:\n    {statement}\nexcept ImportError as err:\n    print(err.name)")
    assert tried.stdout.strip() in EXTRAS


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("up",), "local"),
        (("agent", "--data", "."), "agent"),
        (("replay", "orders", "--to-parquet", "x"), "replay"),
        (("read", "orders", "--follow", "--resolver", "http://127.0.0.1:9"), "consumer"),
    ],
)
def test_a_command_says_which_extra_it_needs(arguments: tuple[str, ...], extra: str, install: Install) -> None:
    done = install("cli").run("coldstream", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("coldstream: this needs the package ")
    assert done.stderr.endswith(f"pip install 'coldstream[{extra}]'\n")


def test_what_is_installed_runs_an_archive_and_reads_it(install: Install, settings: dict[str, str]) -> None:
    cli = install("cli")
    log = next(log for log in golden_logs() if log.stream == "plain")
    assert cli.run("coldstream", "announce", log.directory, "--wait", env=settings).returncode == 0
    (listed,) = [
        stream
        for stream in map(json.loads, cli.run("coldstream", "streams", "-o", "json", env=settings).stdout.splitlines())
        if stream["incarnation"] == log.incarnation
    ]
    read = cli.run("coldstream", "read", log.stream, env=settings)
    assert read.returncode == 0
    assert len(read.stdout.splitlines()) == listed["messages"] > 0


@pytest.mark.timeout(300)
def test_the_front_page_works_after_the_line_that_installs_it(
    install: Install, settings: dict[str, str], broker: Broker
) -> None:
    installed = install(*pip_lines(README)[0])
    with broker.connect() as streams:
        streams.create_stream("orders", max_segment_bytes=100_000)
        for _ in range(3):
            streams.publish("orders", [b"\x00\x53\x75\xa0\x05hello" for _ in range(6000)])
        directory = broker.stream_directory("orders")
        assert installed.run("coldstream", "announce", directory, "--wait", env=settings).returncode == 0
        (example,) = (one for one in EXAMPLES if "rabbitmq-stream:" in one)
        for shown, here in (
            ("http://127.0.0.1:8380", settings["COLDSTREAM_RESOLVER_URL"]),
            ("rabbitmq-stream://guest:guest@localhost:5552", broker.stream_uri),
        ):
            assert shown in example
            example = example.replace(shown, here)
        command = installed.line("python", "-u", "-c", example)
        with subprocess.Popen(command, env=installed.variables(), stdout=subprocess.PIPE, text=True) as running:
            try:
                assert running.stdout is not None
                lines = [running.stdout.readline() for _ in range(18_000)]
            finally:
                running.kill()
    assert lines == [f"{offset} b'hello'\n" for offset in range(18_000)]


def test_the_front_page_writes_without_a_broker_by_the_package_alone(
    install: Install, settings: dict[str, str]
) -> None:
    (example,) = (one for one in EXAMPLES if "rabbitmq-stream:" not in one)
    done = install().run("python", "-c", example, env=settings)
    assert done.stdout.splitlines() == ["0 b'alice logged in'", "1 b'alice logged out'"], done.stderr


@pytest.mark.parametrize("job", ["compact", "replay"])
def test_a_job_is_found_in_the_package(job: str, install: Install) -> None:
    done = install("spark").run("python", "-m", f"coldstream_spark.jobs.{job}", "--help")
    assert done.returncode == 0
    assert f"usage: {job}.py" in done.stdout


SCAN = """
import os
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("coldstream").option("stream", "plain").load().count())
"""


def test_spark_reads_by_what_is_installed(install: Install, settings: dict[str, str]) -> None:
    if not find_spark():
        do_without("Java", "on Debian: apt-get install default-jre-headless")
    spark = install("spark")
    java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    log = next(log for log in golden_logs() if log.stream == "plain")
    assert spark.run("coldstream", "announce", log.directory, "--wait", env=settings).returncode == 0
    here = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": spark.line("python")[0]}
    done = spark.run("python", "-c", SCAN, env={**settings, **java, **here})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 0
