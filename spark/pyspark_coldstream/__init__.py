"""The module by which Spark finds the data source: it takes `DefaultSource` of every `pyspark_…` module on its path.

So `format("coldstream")` needs no registration, not even over Spark Connect. The code is in coldstream_spark.
"""

import logging

try:
    from coldstream_spark.datasource import ColdstreamDataSource as DefaultSource
except Exception as err:  # noqa: BLE001  an error here would make Spark lose all sources of everybody
    logging.getLogger(__name__).warning(
        "the data source coldstream is not available: %s; pip install 'coldstream[spark]' brings all that it needs", err
    )
else:
    __all__ = ["DefaultSource"]
