"""The rules of the handbook, checked by `make check`: `python -m tests.handbook` prints each violation and fails.

- A link of a Markdown file leads to a file of the repository and, if it names one, to a heading there. The text of a heading is such that
  GitHub and `mkdocs` give it the same anchor.
- A page that code, the chart or a test names (`docs/..`) is there.
- Each page is in the navigation of `mkdocs.yml`, so that a reader finds it.
- What belongs to an item of a list is indented by four spaces, its code by eight: with fewer, `mkdocs` ends the list.
- The handbook has at most 50,000 words: who adds a page shortens another one.

No address outside of the repository is asked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 50_000
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_NAMED = re.compile(r"\bdocs/[\w./-]+\w")
_CODE = re.compile(r"(?:\A|(?<=\n\n))(?: {4}.*\n)+|^```(?s:.*?)^```$", re.MULTILINE)
_OUT_OF_LIST = re.compile(r"^(?! {4}|```).+\n\n((?: {1,3}| {5,7})\S.*)", re.MULTILINE)
_INLINE = re.compile(r"`(?:[^`\n]|\n(?!\n))*`")


def main() -> int:
    files = _tracked()
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in files if name.endswith(".md")}
    breaches = [
        *broken_links(texts, frozenset(files)),
        *_missing_pages(files),
        *_unlisted(texts),
        *_out_of_lists(texts),
    ]
    if (words := handbook_words(texts)) > MOST_WORDS:
        breaches.append(f"docs/: {words:,} words; at most {MOST_WORDS:,}")
    sys.stdout.writelines(f"{breach}\n" for breach in breaches)
    return 1 if breaches else 0


def broken_links(texts: Mapping[str, str], files: frozenset[str]) -> Iterator[str]:
    anchors = {name: frozenset(_anchors(text)) for name, text in texts.items()}
    for name, text in texts.items():
        for heading in _headings(text):
            if github_anchor(heading) != mkdocs_anchor(heading):
                yield f"{name}: the heading {heading!r} has another anchor on GitHub than in mkdocs"
        for link in links(text):
            target, _, anchor = link.partition("#")
            path = _resolved(name, target) if target else name
            if path is None or (path not in files and not any(each.startswith(f"{path}/") for each in files)):
                yield f"{name}: {link} leads to no file"
            elif anchor and anchor not in anchors.get(path, frozenset()):
                yield f"{name}: {link} leads to no heading"


def links(text: str) -> list[str]:
    """Where the links of a page lead inside of the repository. Code has none."""
    prose = _INLINE.sub("``", _CODE.sub("", text))
    return [link for link in _LINK.findall(prose) if not re.match(r"[a-z]+:", link)]


def github_anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def mkdocs_anchor(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def handbook_words(texts: Mapping[str, str]) -> int:
    return sum(len(text.split()) for name, text in texts.items() if name.startswith("docs/"))


def _anchors(text: str) -> Iterator[str]:
    seen: Counter[str] = Counter()
    for heading in _headings(text):
        anchor = github_anchor(heading)
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1


def _headings(text: str) -> list[str]:
    found = re.findall(r"^#{1,6} +(.+?) *$", _CODE.sub("", text), re.MULTILINE)
    return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in found]


def _resolved(page: str, target: str) -> str | None:
    path = (ROOT / page).parent.joinpath(target).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


def _missing_pages(files: list[str]) -> Iterator[str]:
    for name in files:
        if name.startswith("docs/") or not name.endswith(
            (".py", ".yaml", ".txt", ".json", ".toml", "Makefile", "Dockerfile")
        ):
            continue
        for page in _NAMED.findall((ROOT / name).read_text(encoding="utf-8")):
            if "." in page and page not in files:
                yield f"{name}: there is no {page}"


def _unlisted(texts: Mapping[str, str]) -> Iterator[str]:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in texts:
        if name.startswith("docs/") and f" {name.removeprefix('docs/')}\n" not in listed:
            yield f"{name}: not in the navigation of mkdocs.yml"


def _out_of_lists(texts: Mapping[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        for line in _OUT_OF_LIST.findall(text) if name.startswith("docs/") else ():
            yield f"{name}: `mkdocs` takes this out of its list: {line.strip()[:60]}"


def _tracked() -> list[str]:
    """Files of the repository, those that are not committed yet among them."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


if __name__ == "__main__":
    sys.exit(main())
