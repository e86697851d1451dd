"""A pytest plugin: print why a test failed when it fails, for runs that may be ended before their summary.

python -m pytest -p benchmarks.failures_at_once tests
"""

import sys

import pytest

LINES = 12


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failed test's name and the end of its report."""
    if report.failed:
        last = report.longreprtext.splitlines()[-LINES:]
        print(f"\nFAILED {report.nodeid}", *last, sep="\n    ", file=sys.__stdout__, flush=True)
