"""The data source `coldstream`: the archive as rows, for batch and for streaming queries.

spark.dataSource.register(ColdstreamDataSource) makes `spark.read.format("coldstream")` and `spark.readStream` know it.
"""

from coldstream_spark.datasource import ColdstreamDataSource

__all__ = ["ColdstreamDataSource"]
