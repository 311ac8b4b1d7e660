"""Ask a submission's questions and judge the answers: from a master and answers to a result.

=====================  ===========================================================================
:mod:`.master`         the exercise's notebook: its given cells, answer cells and questions
:mod:`.answers`        the sources that a submission has for the answer cells
:mod:`.modules`        which modules an exercise's questions consist of
:mod:`.draws`          the hidden inputs, drawn after the submission was read
:mod:`.grader`         a job runs in a sandbox; what comes out is compared with the truth
:mod:`.played`         the smallest wrong case, traced line by line
:mod:`.batch`          jobs are handed to Dask workers, and retried where one dies
:mod:`.dask_preload`   what a Dask worker does first
:mod:`.journal`        each result is stored at once
=====================  ===========================================================================
"""
