"""The landing page says how far one is."""

CHAPTER = "notebooks/00_life_of_a_graph.html"


def test_what_was_answered_stands_beside_its_chapter(visit, server, page):
    visit(server, server)
    assert page.locator(".progress-note").count() == 0
    page.goto(server + CHAPTER)
    quiz = page.locator("form.quiz")
    quiz.locator("input").first.check()
    quiz.get_by_role("button", name="Check my answers").click()
    page.goto(server)
    note = page.locator(".path li", has_text="Ten minutes").locator(".progress-note")
    assert note.inner_text().strip() == "1 of 11 answered"
    assert page.complaints == []
