"""What a grading leaves for people: a :mod:`.table` for the teacher, a :mod:`.page` a learner."""
