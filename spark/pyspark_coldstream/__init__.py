"""Where Spark looks for data sources by itself: the `DefaultSource` of each module named `pyspark_…` on its path.

So `format("coldstream")` needs no registration, also over Spark Connect. All that there is is in coldstream_spark.
"""

import logging

try:
    from coldstream_spark.datasource import ColdstreamDataSource as DefaultSource
except Exception as err:  # noqa: BLE001  any error here would take away everybody's sources
    logging.getLogger(__name__).warning("no data source coldstream: %s; pip install 'coldstream[spark]' has it", err)
else:
    __all__ = ["DefaultSource"]
