"""Who runs a job: a worker, a Lambda that continues itself, or Spark on EMR Serverless.

`runner` chooses by the job and its size. `job_slice` is one run of a job in a Lambda, and `job_queue` how the Lambda is
called again. `emr_run` is EMR's API, `emr_arguments` what its scripts are given, and `emr_jobs` starts and follows
runs. Begin with `tick`: it is called each minute, by a function, or by a worker.
"""
