"""The core of Offprints: what every method shares and nothing that knows a method.

Stable, for method code: `device`, `seeding`, `progress`, `checkpoint`, `checks`.
Provisional, for claims, tests and the command line: `claims`, `stats`, `bench`, `card`, `plot`, `testing`, `cli`.
"""

from importlib.metadata import version

__version__ = version("offprints")
__all__ = ["__version__"]
