"""The page in a real browser: opened from a file with the network off."""

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from reported_bank import HTML_ID, HTML_NAME, PERIODS

pytestmark = pytest.mark.browser
ARTEFACTS = Path(os.environ.get("CONCAL_ARTEFACTS", Path(__file__).resolve().parents[2] / "artefacts"))
SECTIONS = (
    *("overview", "changes", "drift", "items", "links"),
    *("data", "calibration", "consensus", "abilities", "agreement"),
)


def start(width=1366, height=900):
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    page = webdriver.Chrome(options=options, service=Service(driver))
    page.execute_cdp_cmd("Network.enable", {})
    page.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    return page


def wait_for(page, script, *arguments, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = page.execute_script(script, *arguments)
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never true: {script}")


def open_page(page, path):
    page.get(path.as_uri())
    state = wait_for(page, "return document.documentElement.dataset.ready")
    assert state == "true", page.execute_script("return document.getElementById('broken').textContent")


@pytest.fixture(scope="module")
def path(reported, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(reported[2], encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def page(path):
    page = start()
    open_page(page, path)
    page.execute_script("drawEverything()")
    yield page
    page.quit()


def test_no_error_and_no_request(page):
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    outside = page.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('blob:'))"
    )
    assert outside == []


@pytest.mark.parametrize(
    "name",
    [
        "exposure",
        "rhat",
        "clouds",
        "anchors",
        "uncertainty",
        "agreement",
        "abilities",
        "movers",
        "tests",
        "measures",
        "map",
    ],
)
def test_charts_are_drawn_with_numbers_one_click_away(page, name):
    drawn = page.execute_script(
        """
        const host = document.querySelector(`[data-figure="${arguments[0]}"]`);
        const shapes = host.querySelectorAll("svg rect, svg path, svg circle").length;
        const inked = [...host.querySelectorAll("canvas")].map(c => {
          const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
          let n = 0; for (let k = 3; k < d.length; k += 4) n += d[k] > 0; return n; });
        const box = host.querySelector("details.numbers");
        return [shapes, inked, Boolean(box)];
        """,
        name,
    )
    shapes, inked, numbers = drawn
    assert shapes + sum(inked) > 5, drawn
    assert all(n > 20 for n in inked), drawn
    assert numbers
    rows = page.execute_script(
        """
        const box = document.querySelector(`[data-figure="${arguments[0]}"] details.numbers`);
        box.querySelector("summary").click();
        return new Promise(done => setTimeout(() => done(box.querySelectorAll("tbody tr").length), 100));
        """,
        name,
    )
    assert rows > 0


def test_explorer_finds_an_item_by_keyboard(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    search = page.find_element(By.ID, "search")
    search.clear()
    search.send_keys("essay-0001")
    found = page.find_elements(By.CSS_SELECTOR, "#found li")
    assert found[0].text == "essay-00010"
    search.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    assert wait_for(page, "return document.getElementById('item-id')?.textContent") == "essay-00011"
    assert page.execute_script("return location.hash") == "#item=essay-00011"
    shown = page.find_element(By.ID, "item").text
    assert "gpcm with 4 categories" in shown
    assert "consensus" in shown
    plots = page.execute_script("return document.querySelectorAll('#item svg path').length")
    assert plots > 10


def test_explorer_shows_the_banks_numbers(page, reported):
    table = reported[0].items(["vocabulary-00010"])
    page.execute_script("openItem('vocabulary-00010')")
    cells = page.execute_script(
        "const last = document.querySelector('[data-panel=posteriors] table tbody tr:last-child');"
        "return [...last.children].map(c => c.textContent)"
    )
    d = table.filter(parameter="d").row(0, named=True)
    assert cells[0] == "consensus"
    assert float(cells[1]) == pytest.approx(d["mean"], abs=6e-4)
    assert float(cells[2]) == pytest.approx(d["sd"], abs=6e-4)
    assert int(cells[5]) == d["n_responses"]


def test_explorer_shows_an_items_information(page, reported):
    page.execute_script("openItem('vocabulary-00010')")
    rows = page.execute_script(
        """
        document.querySelector("[data-panel=information] details.numbers summary").click();
        return new Promise(done => setTimeout(() => done(
          [...document.querySelectorAll("[data-panel=information] tbody tr")]
            .map(tr => [...tr.children].map(c => Number(c.textContent)))), 100));
        """
    )
    known, (information, _) = reported[1].consensus.groups["vocabulary"], reported[1].information["vocabulary"]
    exact = information[known.item_ids.index("vocabulary-00010")]
    np.testing.assert_allclose([r[1] for r in rows[: exact.size]], exact[: len(rows)], atol=0.04 * exact.max() + 1e-3)
    assert all(r[2] <= r[1] <= r[3] for r in rows)


def test_observed_scores_are_points_over_the_curve(page, reported):
    factors = reported[0].factors(PERIODS[2]).groups["vocabulary"]  # the period with response tables
    item = next(i for i, n in zip(factors.item_ids, factors.n_responses, strict=True) if n > 5)
    page.execute_script("openItem(arguments[0])", item)
    drawn = "return [...document.querySelectorAll('#item canvas')].map(c => Number(c.parentNode.dataset.points))"
    assert page.execute_script(drawn) == [5]
    assert "Numbers of the points" in page.find_element("id", "item").text


def test_html_in_ids_is_text(page):
    page.execute_script("openItem(arguments[0])", HTML_ID)
    assert page.execute_script("return document.getElementById('item-id').textContent") == HTML_ID
    assert page.execute_script("return document.querySelectorAll('main img, main b').length") == 0
    assert page.title == f"{HTML_NAME} – version 4"


def test_link_to_an_item(path):
    page = start()
    try:
        page.get(path.as_uri() + "#item=dictation-00002")
        wait_for(page, "return document.documentElement.dataset.ready")
        assert page.execute_script("return document.getElementById('item-id').textContent") == "dictation-00002"
    finally:
        page.quit()


def test_every_control_is_reached_by_tab(page):
    from selenium.webdriver.common.keys import Keys

    page.execute_script("document.querySelector('.skip').focus()")
    wanted = {"A Skip to the report", "BUTTON theme", "INPUT search", "SUMMARY", "SELECT"}
    for _ in range(400):
        active = page.execute_script(
            "const e = document.activeElement; return e.tagName + ' ' + (e.id || e.textContent.slice(0, 30))"
        )
        wanted -= {active, active.split()[0]}
        if not wanted:
            break
        page.switch_to.active_element.send_keys(Keys.TAB)
    assert not wanted


def test_dark_theme_changes_paper_and_plots(page):
    look = "return [getComputedStyle(document.body).backgroundColor, color('s0')]"
    before = page.execute_script("document.documentElement.dataset.theme = 'light';" + look)
    after = page.execute_script("document.documentElement.dataset.theme = 'dark';" + look)
    page.execute_script("document.documentElement.removeAttribute('data-theme'); redrawAll()")
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_prints_a_clean_pdf(page):
    """Pages of A4, nothing of the screen's controls, no plot wider than the paper."""
    import base64

    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.set_window_size(690, 1000)  # A4 less its margins
    controls = "document.querySelectorAll('nav, .pager, .controls, #search')"
    assert page.execute_script(f"return [...{controls}].filter(e => e.offsetParent).length") == 0
    wide = """
        return [...document.querySelectorAll("main table, main .plot")]
          .filter(e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1)
          .map(e => e.closest("section").id + " " + (e.querySelector("caption")?.textContent || e.className))"""
    assert page.execute_script(wide) == []
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.set_window_size(1366, 900)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000


def test_opens_on_the_item_most_worth_seeing(path, reported):
    page = start()
    try:
        open_page(page, path)
        moved = reported[1].drift.items.filter("drifted")
        assert page.find_element("id", "item-id").text == moved["item_id"][0]
        said = page.find_element("css selector", "[data-panel=curves] figcaption").text
        assert f"It moved in {moved['period'][0]}" in said
    finally:
        page.quit()


@pytest.mark.parametrize("width", [1300, 800, 500])
def test_fits_and_screenshots(path, width):
    page = start(width)
    try:
        open_page(page, path)
        page.execute_script("document.documentElement.style.scrollBehavior = 'auto'; openItem('essay-00010')")
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        page.execute_script("drawEverything()")
        cut = """
            return [...document.querySelectorAll(".scroll")].filter(s => s.scrollWidth > s.clientWidth + 1)
              .map(s => s.closest("section").id + " " + (s.querySelector("caption, th")?.textContent))"""
        if width >= 800:
            assert page.execute_script(cut) == []
        clipped = """
            return [...document.querySelectorAll(".plot svg text")].filter(t => {
              const own = t.getBoundingClientRect(), box = t.ownerSVGElement.getBoundingClientRect();
              return own.width && (own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1);
            }).map(t => t.closest("section").id + " " + t.textContent)"""
        assert page.execute_script(clipped) == []
        ARTEFACTS.mkdir(exist_ok=True)
        for k, name in enumerate(SECTIONS):
            height = page.execute_script("return document.getElementById(arguments[0]).scrollHeight", name)
            page.set_window_size(width, min(int(height) + 150, 3000))
            time.sleep(0.3)
            page.execute_script("document.getElementById(arguments[0]).scrollIntoView()", name)
            assert page.save_screenshot(str(ARTEFACTS / f"report-{width}-{k}-{name}.png"))
    finally:
        page.quit()
