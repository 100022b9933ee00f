"""One module per experiment: what its arrays, decisions and counts must be, derived again from seeds and stored inputs."""
