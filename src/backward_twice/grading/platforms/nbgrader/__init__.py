"""nbgrader: read the folders that it collects, and write points and findings to its gradebook."""
