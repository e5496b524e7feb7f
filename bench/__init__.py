"""Benchmarks of Holdfast against hand-written SQL, and of its worker against other libraries: `make
bench`.

Every figure has a baseline from the same run: hand-written SQL on the same driver, the same tables and
indexes, and the same durability; or another library's worker with its best settings, on the same
disk. An absolute rate says more about the machine.

`cases/` has the measurements; `job_store`, `raw_sqlite`, `raw_postgres` and `holdfast_store` are the
compared implementations, `contenders` and `peers/` the compared workers.
"""
