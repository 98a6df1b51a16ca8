"""RQ's own test suite against envq: `python tests/compat/run_rq_suite.py`, or `make compat`."""
