"""`Chromium`: a real browser, Debian's, driven by Playwright. What it complains about fails the test that looked at the page.

The package chromium-headless-shell is the same engine without a desktop's window: a page costs a fifth of what it costs in `chromium`, which serves
where the shell is not installed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect, sync_playwright

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_PATIENCE_MS = 60_000
_GRAVE = ("serious", "critical")


class Chromium:
    """Runs between `start` and `stop`."""

    def start(self) -> None:
        found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        assert found is not None, "there is no chromium: run devstack/ensure-chromium"
        expect.set_options(timeout=_PATIENCE_MS)
        self._playwright = sync_playwright().start()
        self._browser: Browser = self._playwright.chromium.launch(executable_path=found, args=list(_FLAGS))

    def stop(self) -> None:
        self._browser.close()
        self._playwright.stop()

    @contextmanager
    def page(self, expected: str = "$^", **options: Any) -> Iterator[Page]:
        """`expected`: complaints that the test provokes. Violations of the Content-Security-Policy are among the complaints."""
        complaints: list[str] = []
        context = self._browser.new_context(**options)
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        try:
            yield page
            grave = [text for text in complaints if not re.search(expected, text)]
            assert grave == [], f"{page.url}: {grave}"
        finally:
            context.close()


def barriers(page: Page) -> list[str]:
    """What keeps somebody from using the page: serious findings of axe, which a page loads once."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in _GRAVE]
