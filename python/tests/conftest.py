from collections.abc import Iterator

import pytest

import isometry as iso


@pytest.fixture(scope="session")
def shared_machine() -> Iterator[iso.Machine]:
    with iso.Machine() as machine:
        yield machine


@pytest.fixture
def m(shared_machine: iso.Machine) -> iso.Machine:
    return shared_machine
