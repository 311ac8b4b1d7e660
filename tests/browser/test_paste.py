"""The field "Paste your error" on the landing page."""

from pathlib import Path

import pytest
import yaml

from .test_published import letters, messages_of_the_atlas

CASES = yaml.safe_load(Path(__file__).with_name("pasted_errors.yml").read_text(encoding="utf-8"))
FREED = "RuntimeError: Trying to backward through the graph a second time"


@pytest.fixture
def paste(visit, server):
    """Put a traceback and a script into the field of the landing page, and submit."""

    def diagnose(trace: str, script: str = ""):
        page = visit(server, server)
        page.get_by_label("Traceback or message").fill(trace)
        if script:
            page.get_by_text("Add your script").click()
            page.get_by_label("Script", exact=True).fill(script)
        page.get_by_role("button", name="Find the repair").click()
        return page

    return diagnose


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_pasted_error_ends_with_its_repair(paste, case):
    page = paste(case["trace"], case.get("script", ""))
    diagnosis = page.get_by_role("region", name="Diagnosis")
    clicks = case.get("clicks", [])
    for answer in clicks:
        diagnosis.get_by_role("button", name=answer).click()
    assert diagnosis.locator("fieldset").count() <= 3
    text = diagnosis.locator(".repair").inner_text()
    assert diagnosis.locator("strong").first.inner_text().startswith(case.get("title", ""))
    if "frames" in case:
        assert diagnosis.locator("ul > li").count() == case["frames"]
    assert text.removeprefix("Repair: ").startswith(case["repair"])
    blocks = diagnosis.locator("pre").all_inner_texts()
    if "code" in case:
        assert blocks[0] == case["code"]
    assert blocks[-1] == case.get("command", "python -m gradtrace --strict your_script.py")
    if "line" in case:
        lines = diagnosis.locator("p > .evidence code").all_inner_texts()
        assert "\n".join(lines) == case["line"].rstrip("\n")
    if "example" in case:
        assert diagnosis.locator(f"a[href='{case['example']}']").count() == 1
        page.goto(page.url + case["example"])
        assert page.locator("section:target").count() == 1
    assert page.complaints == []


def test_each_stored_error_of_the_atlas_finds_its_entry(paste):
    page = paste(FREED)
    messages = list(messages_of_the_atlas())
    assert len(messages) > 30
    for heading, message in messages:
        entry = page.evaluate("text => entriesIn(text)[0]?.heading ?? ''", message)
        kind = letters(heading.partition(" (")[0])  # of one message there are several entries
        assert kind in letters(entry), message


@pytest.mark.parametrize("operation", ["ReluBackward0", "TanhBackward0", "ExpBackward0"])
def test_a_layer_that_writes_in_place_is_no_matter_of_the_optimizer(paste, operation):
    message = (
        "RuntimeError: one of the variables needed for gradient computation has been modified by "
        f"an inplace operation: [torch.FloatTensor [4, 8]], which is output 0 of {operation}, is "
        "at version 1; expected version 0 instead."
    )
    page = paste(message)
    entries = page.evaluate("text => entriesIn(text).map(({ heading }) => heading)", message)
    assert "version 2" in entries[-1]
    likely = page.locator("fieldset").first.locator("button").first.inner_text()
    assert "optimizer.step()" not in likely


def test_each_message_of_the_guide_is_an_entry_of_the_atlas(paste):
    missing = """GUIDE.filter(({ message }) => !/^No error/.test(message))
        .filter(({ message }) => !ATLAS.some(({ wordings }) => wordings[0].includes(message)))
        .map(({ message }) => message)"""
    assert paste(FREED).evaluate(missing) == []


def test_each_answer_of_the_guide_is_reached_by_at_most_three_clicks(paste):
    page = paste("what is this?")
    diagnosis = page.get_by_role("region", name="Diagnosis")
    repairs = page.evaluate("""() => {
      const buttons = (k) => [...document.querySelectorAll(".diagnosis fieldset")].at(k)
        ?.querySelectorAll("button:not(.change)") ?? [];
      const repairs = [];
      const visit = (depth) => [...buttons(depth)].forEach((button) => {
        button.click();
        const repair = document.querySelector(".diagnosis .repair");
        if (repair) repairs.push([depth + 1, repair.innerText]);
        else visit(depth + 1);
      });
      visit(0);
      return repairs;
    }""")
    assert len(repairs) == page.evaluate("""() => {
      const ends = (node) => node.answers ? node.answers.map(ends).reduce((a, b) => a + b) : 1;
      return ends({ answers: GUIDE });
    }""")
    assert max(depth for depth, _ in repairs) <= 3
    assert diagnosis.get_by_role("link", name="Search the site for it").count() == 1
    assert page.complaints == []


def test_nothing_is_sent_and_nothing_pasted_is_run(paste, page):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    paste("", "").wait_for_load_state("networkidle")
    diagnosis = page.get_by_role("region", name="Diagnosis")
    assert diagnosis.inner_text().startswith("Paste your error above")
    before = len(requests)
    poison = "<img src=x onerror='document.title = 1'>"
    page.get_by_label("Traceback or message").fill(
        f'{FREED}\n  File "{poison}.py", line 1, in f\n    {poison}\n{FREED}'
    )
    page.get_by_role("button", name="Find the repair").click()
    diagnosis.get_by_text("onerror").first.wait_for()
    assert page.locator(".paste img").count() == 0
    assert requests[before:] == []
    assert page.complaints == []


def test_without_scripts_the_landing_page_has_no_field(browser, server):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(server)
        assert not page.locator(".paste").is_visible()
        assert page.locator("table.answer").is_visible()


def test_the_keyboard_alone_reaches_the_repair(paste, page):
    paste("", "")
    page.get_by_label("Traceback or message").focus()
    page.keyboard.insert_text(FREED)
    for _ in range(2):  # the script's fold, the button
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    for answer in ("In the same iteration", "Both losses"):
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.innerText").startswith(answer):
                break
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.ariaPressed") == "true"  # the focus stays
        page.keyboard.press("Tab")  # to the next question or into the repair, past no other button
        assert page.evaluate("document.activeElement.className") != "change"
        answered = "Boolean(document.activeElement.closest('.answered'))"
        assert page.evaluate(answered) is False
    assert page.locator(".repair").inner_text().startswith("Repair: Add the losses")
    page.get_by_role("button", name="Choose another answer").first.press("Enter")
    assert page.locator(".repair").count() == 0
    assert page.evaluate("document.activeElement.innerText").startswith("In a later iteration")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_diagnosis_is_accessible_and_fits_a_phone(paste, page, axe, theme):
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.set_viewport_size({"width": 360, "height": 800})
    case = CASES[0]
    paste(case["trace"], case["script"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.evaluate(axe)
    rules = "axe.run('.paste').then(({ violations }) => violations.map(({ id }) => id))"
    assert page.evaluate(rules) == []
    assert page.get_by_role("region", name="Diagnosis").get_attribute("aria-live") == "polite"
