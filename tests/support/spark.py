"""A Spark of the tests' own, on two cores: started here, reachable from here only, gone afterwards.

Its Python workers are the interpreter that runs the tests, with the sources on their path; they find the emulated AWS
as the tests do, by the environment that the Java process was started with. Timestamps that `collect` returns are in the
zone of the machine, as ever in PySpark: compare epochs, or strings that Spark made, whose zone is UTC. Java compiles
for a quick start and not for speed: nothing to measure with.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.fixtures import do_without
from tests.support.server import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = (ROOT / "layers/coldstream/python", ROOT / "spark", ROOT)
REMEDY = "pip install 'coldstream[spark]', and on Debian: apt-get install default-jre-headless"
FOREIGN = ("HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE", "YARN_CONF_DIR")
"""What would bring in a Spark, or settings, of someone else."""

ASKS_ITS_SOCKETS_TO_CLOSE = (4, 2)
"""The first Spark that does: those of older ones are closed by the garbage collector, which Python warns of."""

QUIET = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def spark_version() -> tuple[int, ...]:
    """Return the first two numbers of PySpark's version, none without PySpark."""
    try:
        return tuple(map(int, metadata.version("pyspark").split(".")[:2]))
    except metadata.PackageNotFoundError:
        return ()


def pytest_configure(config: pytest.Config) -> None:
    """Pass over what only an old Spark does."""
    if () < spark_version() < ASKS_ITS_SOCKETS_TO_CLOSE:
        for warning in ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"):
            config.addinivalue_line("filterwarnings", warning)


def find_spark() -> bool:
    """Return whether PySpark and a Java for it are here."""
    has_java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    return has_java and importlib.util.find_spec("pyspark") is not None


def spark_home() -> Path:
    """Return the directory of Spark's own commands and jars, inside the package."""
    specification = importlib.util.find_spec("pyspark")
    assert specification is not None
    assert specification.origin is not None
    return Path(specification.origin).parent


def settings(directory: Path) -> dict[str, str]:
    """Return the configuration of a Spark that keeps its files in `directory`."""
    (directory / "log4j2.properties").write_text(QUIET)
    java = {
        "log4j2.configurationFile": f"file:{directory / 'log4j2.properties'}",
        "java.io.tmpdir": str(directory),
        "java.net.preferIPv4Stack": "true",
        "user.timezone": "UTC",
    }
    return {
        "spark.master": "local[2]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(
            ["-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", *(f"-D{name}={value}" for name, value in java.items())]
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def environment() -> dict[str, str]:
    """Return the variables that Spark's Java process, and so every Python worker, is started with."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, SOURCES)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture(scope="session")
def spark(aws: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session, one for the whole run: views in it want names of their own, settings want to be put back.

    It starts in about 5 s. Sources are registered with `spark.dataSource.register`.
    """
    if not find_spark():
        do_without("Spark", REMEDY)
    from pyspark import SparkConf  # noqa: PLC0415  only tests with Spark pay for it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    configuration = SparkConf(loadDefaults=False).setAll(list(settings(tmp_path_factory.mktemp("spark")).items()))
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        for name, value in environment().items():
            patch.setenv(name, value)
        try:
            yield SparkSession.builder.appName("tests").config(conf=configuration).getOrCreate()
        finally:
            end_java()


def end_java() -> None:
    """End the session, if there is one, and the Java process behind it, which PySpark would keep until Python ends."""
    from pyspark import SparkContext  # noqa: PLC0415  only tests with Spark pay for it

    gateway = SparkContext._gateway
    try:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
    finally:
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            try:
                gateway.proc.wait(timeout=20)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
            SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def spark_submit(aws: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.Popen[str]]:
    """Starts a script with its arguments by spark-submit, in a Spark of its own; it is there after about 5 s.

    Output is piped, as text: `communicate` waits for it. `variables` are added to the environment.
    """
    if not find_spark():
        do_without("Spark", REMEDY)
    directory = tmp_path_factory.mktemp("spark-submit")
    options = [part for name, value in settings(directory).items() for part in ("--conf", f"{name}={value}")]

    def start(script: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        return subprocess.Popen(
            [str(spark_home() / "bin/spark-submit"), *options, str(script), *arguments],
            env=kept | environment() | {"SPARK_HOME": str(spark_home())} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
