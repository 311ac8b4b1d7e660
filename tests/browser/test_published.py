"""The site as it is published: below a folder, searched, lost in, printed."""

import functools
import http.server
import re
import threading
from pathlib import Path
from urllib.parse import quote

import nbformat
import pytest

from .conftest import _Quiet


@pytest.fixture(scope="module")
def below(site):
    """The address of the site served below a folder, as GitHub Pages does."""
    handler = functools.partial(_Quiet, directory=site.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/{site.name}/"
        httpd.shutdown()


@pytest.mark.parametrize("name", ["", "notebooks/error_atlas.html", "book/verdicts.html"])
def test_below_a_folder_nothing_is_asked_for_above_it(visit, below, name):
    page = visit(below + name, below)
    page.wait_for_load_state("networkidle")
    assert page.complaints == []


def test_the_404_page_searches(visit, below):
    page = visit(f"{below}404.html", below)
    page.get_by_role("main").get_by_role("searchbox").fill("create_graph")
    page.get_by_role("main").get_by_role("button", name="Search").click()
    # Results come one after the other.
    page.locator("#search-results li", has_text="retain_graph").first.wait_for()
    assert page.complaints == []


def test_search_works_from_a_folder(visit, site):
    base = site.as_uri() + "/"
    page = visit(f"{base}search.html?q=detach", base)
    page.locator("#search-results li").first.wait_for()
    assert page.complaints == []


def test_paper_shows_the_player_without_its_buttons(visit, below, page):
    visit(f"{below}index.html", below)
    page.emulate_media(media="print")
    player = page.locator(".gradtrace").first
    player.locator("g").first.wait_for()
    assert not player.locator(".outcome").is_visible()  # its question has not been answered
    assert not player.get_by_label("Step over").is_visible()
    assert not page.locator(".bd-sidebar-primary").is_visible()


def test_no_solution_is_found_before_what_gives_nothing_away(visit, below):
    page = visit(f"{below}search.html?q=retain", below)
    page.locator(".search-summary", has_text="found").wait_for()  # all are there
    links = page.locator("#search-results li > a").all()
    found = [link.get_attribute("href") for link in links]
    solutions = ["solutions/" in address for address in found]
    assert any(solutions) and not all(solutions)
    assert solutions == sorted(solutions), found


#: What people ask, as they type it, and a page that answers it.
QUESTIONS = {
    "what does retain_graph do": "02_what_retain_graph_controls",
    "RNN hidden state second batch": "hidden_state_over_batches",
    "two losses one encoder": "01_two_networks",
    "GAN retain_graph": "01_two_networks",
    "Lightning manual_backward toggle_optimizer": "trainers",
    "modified by an inplace operation after optimizer.step": "error_atlas",
    "SAM second step": "computed_weights",
    "memory grows total += loss": "05_second_time",
    "WGAN-GP gradient penalty": "second_derivatives",
    "MAML": "inner_loops",
    "DDP retain_graph": "07_several_of_everything",
    "DDP BatchNorm two forward passes broadcast_buffers": "ddp_and_fsdp",
    "FSDP two backward create_graph": "ddp_and_fsdp",
    "checkpoint gradients None": "08_recomputed_and_compiled",
    "gradient checkpointing enable_input_require_grads": "trainers",
    "compile donated buffers": "08_recomputed_and_compiled",
    "Function returned an incorrect number of gradients": "error_atlas",
    "invalid gradient at index": "error_atlas",
    "L-BFGS closure": "more_causes",
    "style transfer target detach": "computed_weights",
    "autocast loss does not fall": "autocast",
    "spectral_norm": "computed_weights",
    "Cowardly refusing to serialize non-leaf tensor": "error_atlas",
    "returned nan values in its 0th output": "error_atlas",
    "DataParallel hidden state": "ddp_and_fsdp",
    "retain_grad retain_graph": "seven_switches",
    "CUDA out of memory": "memory_on_a_gpu",
    "PPO actor critic": "decision_guide",
    "GNN cached adjacency": "computed_weights",
    "training slower with each batch": "hidden_state_over_batches",
    "LSTM hidden state": "hidden_state_over_batches",
    "GAN": "01_two_networks",
    "gradient penalty": "second_derivatives",
    "tuple object has no attribute detach": "error_atlas",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_leads_to_a_page_that_answers_it(visit, below, question):
    page = visit(f"{below}search.html?q={quote(question)}", below)
    page.locator(".search-summary", has_text="found").wait_for()  # all are there
    links = page.locator("#search-results li > a").all()[:3]
    first = [re.split("[?#]", link.get_attribute("href"))[0] for link in links]
    assert any(address.endswith(f"/{QUESTIONS[question]}.html") for address in first), first


@pytest.mark.parametrize("question", ["LSTM hidden state", "GAN", "gradient penalty"])
def test_an_explanation_is_found_before_an_exercise(visit, below, question):
    page = visit(f"{below}search.html?q={quote(question)}", below)
    page.locator(".search-summary", has_text="found").wait_for()
    links = page.locator("#search-results li > a").all()
    exercises = ["exercises/" in link.get_attribute("href") for link in links]
    explanations = ["notebooks/" in link.get_attribute("href") for link in links]
    assert any(exercises) and explanations[0]
    assert explanations.index(True) < exercises.index(True)
    assert not any(explanations[exercises.index(True) :])


def messages_of_the_atlas():
    """Each stored error, with the heading that it stands under."""
    atlas = Path(__file__).parents[2] / "notebooks" / "error_atlas.ipynb"
    chapter = heading = ""
    for cell in nbformat.read(atlas, as_version=4).cells:
        if cell.cell_type == "markdown":
            chapter = (re.findall(r"^## (.+)$", cell.source, re.M) or [chapter])[-1]
            heading = (re.findall(r"^### (.+)$", cell.source, re.M) or [heading])[-1]
        for output in cell.get("outputs", ()):
            if output.output_type == "error" and not chapter.startswith("No error"):
                yield heading, f"{output.ename}: {output.evalue}"


def letters(text):
    return re.sub(r"[^a-z0-9]", "", text.lower())


def first_found(page, message):
    """The title of the first result."""
    find = "text => Search._performSearch(...Search._parseQuery(text)).at(-1)[1]"
    return page.evaluate(find, message)


def test_a_pasted_message_finds_its_entry(visit, below):
    page = visit(f"{below}search.html?q=retain", below)
    page.locator(".search-summary", has_text="found").wait_for()
    messages = list(messages_of_the_atlas())
    assert len(messages) > 30
    for heading, message in messages:
        kind = letters(heading.partition(" (")[0])  # of one message there are several entries
        assert kind in letters(first_found(page, message)), message
        # Shapes and versions are the reader's own.
        theirs = re.sub(r"\[\d, ]+\]|version \d+", "731", message)
        assert kind in letters(first_found(page, theirs)), theirs


def test_the_page_with_most_words_is_found_where_none_has_all(visit, below):
    page = visit(f"{below}search.html?q=retain", below)
    page.locator(".search-summary", has_text="found").wait_for()
    known = "deepcopy protocol graph leaves user"
    assert first_found(page, f"{known} zzyzx") == first_found(page, known)
