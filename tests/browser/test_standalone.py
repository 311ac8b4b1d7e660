"""The page of one trace or exploration: wherever it is opened, it plays, or says it in words."""

import pytest
import torch

from gradtrace import explore, trace


def twice(retain_graph=False):
    loss = torch.ones(3, requires_grad=True).exp().sum()
    loss.backward(retain_graph=retain_graph)
    loss.backward()


@pytest.fixture
def served(page, tmp_path):
    """Open the page that ``write(path)`` writes, under a server's content security policy."""

    def open_page(write, policy):
        write(tmp_path / "page.html")
        headers = {"Content-Type": "text/html", "Content-Security-Policy": policy}
        body = (tmp_path / "page.html").read_text(encoding="utf-8")
        page.route("**/*", lambda route: route.fulfill(body=body, headers=headers))
        page.goto("http://forge.test/page.html")
        return page

    return open_page


@pytest.mark.parametrize(
    "policy",
    [
        "default-src 'none'",
        "default-src 'none'; style-src 'unsafe-inline'",
        "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    ],
)
def test_where_scripts_are_forbidden_program_and_outcome_are_there_to_read(served, policy):
    page = served(trace(twice).to_html, policy)
    page.get_by_text("loss.backward(retain_graph=retain_graph)").wait_for()
    page.get_by_text("Trying to backward through the graph a second time").wait_for()
    assert "open it in a browser" in page.locator("body").inner_text()
    assert page.locator(".player").count() == 0


def test_without_storage_or_an_origin_it_plays_and_asks_for_nothing(served):
    policy = "sandbox allow-scripts; default-src 'none'; img-src data:; "
    policy += "script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    page = served(trace(twice).to_html, policy + "; require-trusted-types-for 'script'")
    page.get_by_label("Last step").click()
    assert "step 4 of 4" in page.locator(".position").inner_text()
    assert not page.get_by_text("open it in a browser").is_visible()
    assert page.complaints == []


def test_the_page_of_an_exploration_has_its_controls_and_fits_a_phone(visit, page, tmp_path):
    file = tmp_path / "page.html"
    explore(twice, retain_graph=[False, True]).to_html(file)
    page.set_viewport_size({"width": 360, "height": 800})
    visit(file.as_uri(), file.as_uri())
    page.get_by_label("Last step").click()
    assert "RuntimeError" in page.locator(".outcome").inner_text()
    page.get_by_role("combobox", name="retain_graph").select_option("True")
    page.locator(".outcome", has_text="Ends without an error").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.complaints == []


class Shared(torch.nn.Module):
    """One module feeds two, as in many networks with two losses: arrows go round others."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU())
        self.scores, self.value = torch.nn.Linear(5, 3), torch.nn.Linear(5, 1)

    def forward(self, x):
        h = self.body(x)
        return self.scores(h), self.value(h)


def two_heads():
    model = Shared()
    observations = torch.randn(4, 6)
    scores, value = model(observations)
    policy_loss = (scores.log_softmax(1) * value).mean()
    value_loss = (value - scores.exp().sum(1, keepdim=True)).pow(2).mean()
    loss = policy_loss + value_loss
    return loss


# For each text of the drawing that stands beside a box, the arrows that run over it.
CROSSED = """() => {
  const shadows = [...document.querySelectorAll("*")].map((e) => e.shadowRoot).filter(Boolean);
  const roots = [document, ...shadows];
  const all = (what) => roots.flatMap((root) => [...root.querySelectorAll(what)]);
  const texts = all(".graph .scroll text.made, .graph .scroll text.names")
    .map((text) => [text.textContent, text.getBBox()]).filter(([said]) => said);
  const over = [];
  for (const path of all(".graph .scroll svg > path.edge")) {
    for (let at = 0; at < path.getTotalLength(); at += 0.5) {
      const { x, y } = path.getPointAtLength(at);
      for (const [said, box] of texts) {
        const across = box.x < x && x < box.x + box.width;
        if (across && box.y + 2 < y && y < box.y + box.height - 2) over.push(said);
      }
    }
  }
  return [texts.map(([said]) => said), [...new Set(over)]];
}"""


@pytest.mark.parametrize("width", [360, 1440])
def test_no_arrow_runs_over_a_text(visit, page, tmp_path, width):
    file = tmp_path / "page.html"
    trace(two_heads).to_html(file)
    page.set_viewport_size({"width": width, "height": 900})
    visit(file.as_uri(), file.as_uri())
    page.get_by_label("Last step").click()
    texts, over = page.evaluate(CROSSED)
    assert {"policy_loss", "loss", "output", "scalar"} <= set(texts)
    assert "…" not in texts  # a tensor that nothing names
    assert over == []
