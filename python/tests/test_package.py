import importlib.metadata
import pathlib

import isometry as iso


def test_the_version_is_the_wheels() -> None:
    assert iso.__version__ == importlib.metadata.version("isometry")


def test_the_package_is_typed() -> None:
    assert (pathlib.Path(iso.__file__).parent / "py.typed").exists()
