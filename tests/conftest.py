"""Shared fixtures: the backends that the operator suite runs on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

import aclnn_py
from aclnn_py import emulator

# the same examples on every machine, so that a failure is a failure everywhere
settings.register_profile("suite", deadline=None, derandomize=True, database=None, max_examples=100)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backends",
        default="reference,emulator",
        help="comma-separated backends for the operator suite: reference, emulator",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        names = metafunc.config.getoption("--backends").split(",")
        params = [pytest.param(n, marks=[pytest.mark.emulator] if n == "emulator" else []) for n in names]
        metafunc.parametrize("backend", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> aclnn_py.Backend:
    """One backend of --backends, with its default product; the emulator is built where that is still to do."""
    if request.param == "emulator" and not os.environ.get("ACLNN_PY_LIBRARY_PATH"):
        emulator.build()
    return aclnn_py.get_backend(request.param)


@pytest.fixture(scope="session")
def emulator_lib() -> Path:
    """Directory of the emulator's libraries: what ACLNN_PY_LIBRARY_PATH names, else built once into the cache."""
    given = os.environ.get("ACLNN_PY_LIBRARY_PATH")
    return Path(given) if given else emulator.build()
