"""Write docs/images/page.png, the web page on the demo model: .venv/bin/python tools/make_pictures.py

It needs the extras `server` and `dev` and an installed Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "page.png"
LARGEST = 200_000  # bytes
SIZE = {"width": 1180, "height": 560}
TEXT = (
    "How do I get red wine out of a carpet? A guest spilled a glass on the wool rug in our living room last night. We "
    "have tried salt and cold water, but a pink stain remains. Would baking soda or vinegar damage the fibres?"
)


@contextmanager
def served(model: Path) -> Iterator[str]:
    """Serve a model on a free port; gives the address."""
    command = [sys.executable, "-m", "xmtc", "serve", str(model), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://\S+", line)
        if address is None:
            raise SystemExit(f"the server did not start: {line}")
        yield address[0]
    finally:
        process.terminate()
        process.wait(30)


def draw(address: str, target: Path) -> None:
    """Tag the text, open the explanation of the first label, and save what the browser shows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        page.goto(address)
        page.click('#many label:has(input[value="5"])')
        page.fill("#text", TEXT)
        page.click("#tag")
        page.wait_for_selector("#rankings li")
        page.click("#rankings li button.label")
        page.wait_for_selector("#why:not([hidden]) #why-body *")
        page.click("#rankings li button.accept")
        page.wait_for_timeout(500)  # transitions
        page.screenshot(path=target)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="Serve this model (default: that of xmtc demo).")
    model = parser.parse_args().model
    TARGET.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if model is None:
            model = Path(folder) / "demo" / "model"
            subprocess.run([sys.executable, "-m", "xmtc", "demo", "--out", str(model.parent)], check=True)
        with served(model) as address:
            draw(address, TARGET)
    size = TARGET.stat().st_size
    print(f"{TARGET}: {size:,} bytes")
    if size > LARGEST:
        raise SystemExit(f"{TARGET}: larger than {LARGEST:,} bytes. Choose a smaller size.")


if __name__ == "__main__":
    main()
