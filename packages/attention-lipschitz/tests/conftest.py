pytest_plugins = ["offprints.testing.plugin"]
