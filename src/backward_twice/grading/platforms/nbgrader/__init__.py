"""nbgrader: the folders that it collects are read, points and findings go into its gradebook."""
