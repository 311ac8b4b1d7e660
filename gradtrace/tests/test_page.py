"""The page of one trace: a file that needs nothing else."""

import gzip
import html.parser

import torch

from gradtrace import trace


class Elements(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def failing():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


def test_the_page_has_a_title_and_a_language_and_asks_for_nothing(tmp_path):
    file = tmp_path / "failing.html"
    trace(failing).to_html(file)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "<title>failing, line by line</title>" in text
    elements = Elements(text).found
    assert ("html", {"lang": "en"}) in elements
    asked = [
        value
        for _, attributes in elements
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert asked == ["data:,"]  # no icon is asked for
    assert "Trying to backward" in text  # to be read where no script runs


def test_the_title_of_a_function_without_a_name_is_text(tmp_path):
    trace(lambda: 1).to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>&lt;lambda&gt;, line by line</title>" in text
    assert "Ends without an error." in text


def test_text_that_is_none_can_be_written(tmp_path):
    def program():
        raise FileNotFoundError("bad file name \udcff")

    trace(program).to_html(tmp_path / "page.html")
    assert "bad file name" in (tmp_path / "page.html").read_text(encoding="utf-8")


def steps_of_a_loop():
    cell = torch.nn.GRUCell(4, 4)
    h = torch.zeros(1, 4)
    for x in torch.ones(200, 1, 4):
        h = cell(x, h)
    h.sum().backward()


def layers():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 12)
    model(torch.ones(1, 4, 8)).sum().backward()


def test_pages_of_large_models_stay_small(tmp_path):
    for program in (steps_of_a_loop, layers):
        trace(program, max_steps=10**6).to_html(tmp_path / "page.html")
        assert len(gzip.compress((tmp_path / "page.html").read_bytes(), 6)) < 300_000
