"""Name and version of the distribution, as its metadata state them."""

from importlib.metadata import version

DIST = "duplex-embed"
VERSION = version(DIST)
