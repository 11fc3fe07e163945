"""Pictures of the docs, from a report: python docs/make_pictures.py concal-demo/report.html

Opens the report in a headless Chromium and photographs what the tutorial shows. Needs chromium, chromedriver and
selenium (the `dev` extras).
"""

from __future__ import annotations

import base64
import shutil
import sys
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PLACES = {  # name -> what is photographed, and how much of it
    "overview": ("#overview", 620),
    "drift": ("[data-figure=movers]", 640),
    "links": ("[data-figure=clouds]", 420),
    "agreement": ("[data-figure=agreement]", 760),
    "item": ("#items", 900),
}
FOLDER = Path(__file__).parent / "pictures"
WIDTH = 1100


def main(report: Path) -> None:
    """One picture per section."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={WIDTH},1400")
    page = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    page.get(report.resolve().as_uri())
    while not page.execute_script("return document.documentElement.dataset.ready"):
        time.sleep(0.1)
    FOLDER.mkdir(exist_ok=True)
    page.execute_script("drawEverything()")
    for name, (place, height) in PLACES.items():
        box = page.execute_script(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height}",
            place,
        )
        clip = {"x": box["x"] - 8, "y": box["y"] - 4, "width": box["width"] + 16, "scale": 1}
        clip["height"] = min(box["height"], height)
        shot = page.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        (FOLDER / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
    page.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
