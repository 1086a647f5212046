"""The rules of accessibility of axe-core, run on a page in the browser.

axe-core is by Deque Systems, under the Mozilla Public License 2.0 (https://github.com/dequelabs/axe-core). It is not
part of this project: the package that npm publishes is downloaded, checked and kept with pytest's cache.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

from tests.browser.conftest import settled

VERSION: Final = "4.14.1"
SHA512: Final = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
"""Digest of the package as the registry states it: `npm view axe-core@VERSION dist.integrity`."""

REMAINING: Final[dict[tuple[str, str], str]] = {}
"""Violations that stay: (rule, part of the element's markup) -> why it cannot be mended here. There are none."""

_RUN: Final = """async only => {
  const options = {resultTypes: ["violations"], ...(only.length ? {runOnly: {type: "rule", values: only}} : {})};
  const {violations} = await axe.run(document, options);
  return violations.flatMap(({id, nodes}) => nodes.map(({target, html, failureSummary}) =>
    [id, html, `${target.join(" ")}: ${failureSummary}`]));
}"""


def axe_script(folder: Path) -> str:
    """Return the script of axe-core, downloaded once. folder: where it is kept.

    Raises: OSError without npm, where its registry cannot be reached, or if it sends something else.
    """
    kept = folder / f"axe-{VERSION}.min.js"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as place:
            command = ["npm", "pack", f"axe-core@{VERSION}", "--pack-destination", place]
            try:
                subprocess.run(command, capture_output=True, check=True, timeout=60)
            except subprocess.SubprocessError as problem:
                raise OSError(f"npm has not fetched axe-core {VERSION}: {problem}") from None
            package = (Path(place) / f"axe-core-{VERSION}.tgz").read_bytes()
        if base64.b64encode(hashlib.sha512(package).digest()).decode() != SHA512:
            raise OSError(f"The registry's package axe-core {VERSION} is not the one that is expected.")
        with tarfile.open(fileobj=io.BytesIO(package)) as files:
            script = files.extractfile("package/axe.min.js")
            assert script is not None
            part = folder / f"{kept.name}.{os.getpid()}"
            part.write_bytes(script.read())
        part.replace(kept)  # another worker may be writing it too
    return kept.read_text(encoding="utf-8")


def violations(page: Page, script: str, only: Collection[str] = ()) -> list[str]:
    """Return the violations on a page once it is drawn: rule, element and what would mend it.

    script: of axe-core. only: rules to check; empty for all.
    """
    found: list[Any] = []
    for _ in range(8):
        settled(page)
        if not page.evaluate("() => 'axe' in window"):
            page.evaluate(script)
        found = [
            (rule, told)
            for rule, html, told in page.evaluate(_RUN, list(only))
            if not any(rule == known and part in html for known, part in REMAINING)
        ]
        if not found:
            break
        page.wait_for_timeout(300)  # some of it is mended a little after it was drawn
    return [f"{rule}: {told}" for rule, told in found]
