"""A plugin for pytest: Hypothesis takes the same examples each time, and does not look for the smallest one that fails."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "unshrunk",
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
