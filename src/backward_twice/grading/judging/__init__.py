"""Ask a submission's questions and judge the answers: from a master and answers to a result."""
