"""The :mod:`.tables` for the teacher and a page for each student (:mod:`.student_page`)."""
