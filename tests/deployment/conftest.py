"""The image's build stage, run once, and what helm makes of the chart."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.deployment.container_build import Dockerfile, Image, build
from tests.deployment.helm import Chart, RealHelm, Recording


@pytest.fixture(scope="session")
def dockerfile() -> Dockerfile:
    return Dockerfile.read()


@pytest.fixture(scope="session")
def image(dockerfile: Dockerfile, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(dockerfile, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session", params=["recorded", pytest.param("real", marks=pytest.mark.kubernetes)])
def chart(request: pytest.FixtureRequest) -> Iterator[Chart]:
    """As helm rendered it when its answers were recorded. `make kubernetes` asks the real helm as well, and `make chart` records."""
    records = bool(os.environ.get("SLUICE_RECORD_CHART"))
    if request.param == "recorded":
        yield Chart(Recording.read())
        return
    helm = RealHelm(None if records else Recording.read())
    yield Chart(helm)
    if records:
        Recording.of(helm.answers).write()
