"""Name and version of the distribution, as its metadata state them."""

from importlib.metadata import version

DIST = "direct-spectral"
VERSION = version(DIST)
