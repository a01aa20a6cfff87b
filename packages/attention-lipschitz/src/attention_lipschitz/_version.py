"""Name and version of the distribution, as its metadata state them."""

from importlib.metadata import version

DIST = "attention-lipschitz"
VERSION = version(DIST)
