"""The image's build stage, run once, and the real helm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deployment import helm
from tests.deployment.container_build import Dockerfile, Image, build


@pytest.fixture(scope="session")
def dockerfile() -> Dockerfile:
    return Dockerfile.read()


@pytest.fixture(scope="session")
def image(dockerfile: Dockerfile, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(dockerfile, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def chart() -> helm.Chart:
    return helm.Chart(helm.binary(), Path(__file__).parents[2] / "helm" / "sluice")
