"""A real headless Chromium, where there is one: what a page shows after its script has run."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

_CATCH = "<script>window.onerror = (text) => { document.title = 'ERROR ' + text; };</script>"


def dump(page: str, script: str = "") -> str:
    """The document of `page` once it has run, and then `script`; an error of either becomes the title ERROR ..."""
    assert CHROMIUM is not None
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', _CATCH, page)
    page = page.replace("</body>", f'<script type="module">{script}</script></body>')
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        command += ["--window-size=1200,1600", "--virtual-time-budget=4000", "--dump-dom", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert "<title>ERROR" not in done.stdout, re.findall(r"<title>(.*?)</title>", done.stdout)
    return done.stdout
