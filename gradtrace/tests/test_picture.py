"""Snapshots drawn: true to the graph, accessible, for light and dark pages."""

import xml.etree.ElementTree as ET

import pytest
import torch
from torch import nn

from gradtrace import snapshot

SVG = "{http://www.w3.org/2000/svg}"


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def texts(svg):
    return [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_graph_is_drawn_with_its_states_and_bytes():
    x = torch.ones(3, requires_grad=True)
    loss = x.exp().sum()
    before = texts(snapshot(loss).to_svg())
    assert {"SumBackward0", "ExpBackward0", "■ result [3]", "12 B", "leaf [3]"} <= set(before)
    assert "12 B  no grad" in before
    loss.backward()
    after = texts(snapshot(loss).to_svg())
    assert {"ExpBackward0  freed", "□ result  freed", "12 B  grad"} <= set(after)
    assert "12 B" not in after  # the string is cut, and the thing gone


def test_the_drawing_stands_alone_and_has_a_name_and_a_text(tmp_path):
    graph = snapshot(network()(torch.ones(2, 3)))
    file = tmp_path / "graph.svg"
    text = graph.to_svg(file)
    assert file.read_text(encoding="utf-8") == text
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert f"{len(graph.nodes)} nodes" in root[1].text
    assert "prefers-color-scheme:dark" in text
    assert text.count("http") == 1  # the name of the format
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "desc", "style", "g", "rect", "path", "polyline", "circle", "text",
    }  # fmt: skip


def test_a_notebook_shows_drawing_and_words_in_the_colour_of_the_page():
    model = network()
    shown = snapshot(model(torch.ones(2, 3)).sum(), model=model)._repr_html_()
    page = ET.fromstring(shown)
    assert "prefers-color-scheme" not in shown  # the page decides
    words = " ".join(item.text for item in page.iter("li"))
    assert "TanhBackward0; ■ result [2, 4]; " in words
    assert "; backward goes on to AddmmBackward0" in words


def test_a_notebook_opens_what_is_folded_and_draws_what_looks_the_same_once():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(12)))
    loss = layers(torch.ones(2, 4, requires_grad=True)).sum()
    page = ET.fromstring(snapshot(loss, model=layers)._repr_html_())
    opened = {fold.findtext("summary"): fold for fold in page.iter("details")}
    (layer,) = [fold for name, fold in opened.items() if "11 more look like it" in name]
    drawing = layer.find(f"{SVG}svg")
    said = [text.text for text in drawing.iter(f"{SVG}text")]
    assert {"AddmmBackward0", "TanhBackward0"} <= set(said)
    dotted = [rect for rect in drawing.iter(f"{SVG}rect") if rect.get("stroke-dasharray") == "1 4"]
    assert len(dotted) == 2  # what backward comes from, and what it goes on to
    assert len(page.findall(f".//{SVG}svg")) == 3  # with the first view, and the twelve


class Autoencoder(nn.Module):
    """As variational ones are: modules and operations between them, and nothing around them."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 16), nn.ReLU())
        self.mu, self.logvar = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20))

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()


def test_modules_keep_their_names_where_much_stands_between_them():
    torch.manual_seed(0)
    model = Autoencoder()
    images = torch.rand(8, 20)
    reconstruction, divergence = model(images)
    loss = (reconstruction - images).pow(2).sum() + divergence
    said = texts(snapshot(loss, model=model).to_svg())
    assert {"encoder.0", "mu", "logvar", "decoder"} <= set(said)


def test_an_output_with_many_groups_stays_small():
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.ModuleList(nn.Linear(4, 4) for _ in range(1 + i)) for i in range(40))
    x = torch.ones(2, 4)
    for layer in layers:
        for part in layer:
            x = part(x).tanh()
    page = snapshot(x.sum(), model=layers)._repr_html_()
    assert 10 < page.count("<svg") < 30 and len(page) < 400_000


def test_names_of_a_program_stay_text():
    model = nn.ModuleDict({"<b>&": nn.Linear(1, 1)})
    graph = snapshot(model["<b>&"](torch.ones(1, 1)), model=model)
    assert "<b>&.weight" in texts(graph.to_svg())
    assert "<b>" not in graph._repr_html_()


def test_a_tensor_that_two_modules_saved_counts_once():
    def block():
        return nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))

    model = nn.ModuleDict({"one": block(), "two": block(), "three": block()})
    out = torch.ones(2, 4)
    for part in model.values():
        out = part(out).exp()
    graph = snapshot(out.sum(), model=model)
    said = texts(graph.to_svg())
    held = dict(zip(said, said[2:], strict=False))  # a title, the number of nodes, the bytes
    # What exp saved before a block is used in its own backward pass, and by the first layer.
    expected = {"one.0": "32 B held", "two.0": "0 B, 32 B shared"}
    assert {title: held[title] for title in expected} == expected


def test_what_a_model_holds_besides_is_no_activation():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    model[2].weight.requires_grad_(False)
    loss = model(torch.ones(3, 2)).sum()
    without, known = snapshot(loss).held, snapshot(loss, model=model).held
    statistics, frozen = 2 * 2 * 4, 2 * 4
    assert known.inputs == statistics + frozen
    assert known.activations == without.activations - statistics - frozen
    assert sum(known) == sum(without)


def test_a_model_must_be_a_module():
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module as model.*'list'"):
        snapshot(torch.ones(1, requires_grad=True), model=[])


def test_a_drawing_keeps_nothing_alive_and_is_quick_for_a_large_graph():
    y = torch.ones(1, requires_grad=True)
    for _ in range(20_000):
        y = y.exp()
    text = snapshot(y).to_svg()
    assert len(texts(text)) < 200


def test_shapes_stand_below_what_made_them_and_the_loss_is_an_end():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    graph = snapshot(model(torch.ones(4, 8)).mean(), model=model)
    if not graph.nodes[0].outputs:
        pytest.skip("this PyTorch does not tell what an operation made")
    text = graph.to_svg()
    assert text.count(">[4, 16]<") == 2  # of Addmm and of Relu
    assert text.count(">output scalar<") == 1
    assert "made [4, 16]" in graph._repr_html_()  # in words, too
