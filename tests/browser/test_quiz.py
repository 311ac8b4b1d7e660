"""The questions at the end of a chapter, answered in the page."""

import pytest

CHAPTER = "notebooks/00_life_of_a_graph.html"


@pytest.fixture
def quiz(visit, server):
    return visit(server + CHAPTER, server).locator("form.quiz")


def answer(quiz, right):
    """Choose in each question the choice whose reply is right, or the first that is not."""
    for question in quiz.locator("fieldset").all():
        for reply in question.locator("[data-reply]").all():
            if (reply.get_attribute("data-right") is not None) == right:
                value = reply.get_attribute("data-reply")
                question.locator(f"input[value='{value}']").check()
                break


def test_each_choice_has_its_reply_and_the_sum_follows(quiz, page):
    answer(quiz, right=False)
    quiz.get_by_role("button", name="Check my answers").click()
    assert quiz.get_by_role("status").inner_text() == "0 of 5. Look again at 1, 2, 3, 4, 5."
    assert quiz.locator("[data-reply]:visible").count() == 5
    assert "✗ Not right." in quiz.locator("[data-reply]:visible").first.inner_text()
    answer(quiz, right=True)
    quiz.get_by_role("button", name="Check my answers").click()
    assert quiz.get_by_role("status").inner_text() == "5 of 5."
    assert page.complaints == []


def test_a_long_question_stands_within_its_frame(visit, server, page):
    page.set_viewport_size({"width": 360, "height": 800})
    for question in visit(server + CHAPTER, server).locator("fieldset:visible").all():
        frame, asked = question.bounding_box(), question.locator("legend").bounding_box()
        first = question.locator("label").first.bounding_box()
        assert frame["y"] < asked["y"] and asked["y"] + asked["height"] <= first["y"] + 1


def test_on_paper_a_quiz_has_no_buttons(quiz, page):
    page.emulate_media(media="print")
    assert quiz.locator("legend").first.is_visible()
    assert quiz.get_by_role("button").count() == 0


def test_the_keyboard_is_enough(quiz, page):
    quiz.locator("input").first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    text = quiz.get_by_role("status").inner_text()
    assert text.endswith("Not answered: 2, 3, 4, 5.")
    assert quiz.locator("[data-reply]:visible").count() == 1


def test_answers_are_kept_until_they_are_reset(quiz, page):
    answer(quiz, right=True)
    quiz.get_by_role("button", name="Check my answers").click()
    page.reload()
    assert quiz.get_by_role("status").inner_text() == "5 of 5."
    quiz.get_by_role("button", name="Begin again").click()
    assert quiz.locator("input:checked").count() == 0
    page.reload()
    assert quiz.get_by_role("status").inner_text() == ""


def test_without_scripts_the_answers_are_folded(browser, server):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(server + CHAPTER)
        quiz = page.locator("form.quiz")
        assert not quiz.locator("button").first.is_visible()
        quiz.locator("summary").click()
        assert quiz.locator("details li").count() == 5


def test_each_quiz_of_a_page_keeps_its_own_answers(visit, server, page):
    visit(server + "notebooks/06_explain_my_error.html", server)
    first, second, *_ = page.locator("form.quiz").all()
    first.locator("input").nth(1).check()
    first.get_by_role("button", name="Check my answer").click()
    assert first.locator("[data-reply]:visible").count() == 1
    assert first.get_by_role("status").inner_text() == ""
    second.get_by_role("button", name="Check my answer").click()
    assert second.get_by_role("status").inner_text() == "Not answered."
    page.reload()
    assert page.locator("form.quiz input:checked").count() == 1
    assert first.locator("input").nth(1).is_checked()
