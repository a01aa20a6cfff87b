import pytest

pytest_plugins = ["offprints.testing.plugin"]


@pytest.fixture(scope="session")
def tiny():
    """A random Llama with grouped-query attention over characters, and its tokenizer."""
    from adaptive_decoding.experiments_models import tiny

    return tiny()
