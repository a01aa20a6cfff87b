"""All wheels in one environment: they find each other, share no file, import in any order, leave each other alone."""

import importlib.metadata
import subprocess
import sys
from collections import defaultdict

import pytest
from offprints.claims import load_method, methods

from tools import workspace

PACKAGES = workspace.discover()
METHODS = [dist for dist, package in PACKAGES.items() if not package.is_core]


def test_the_core_finds_every_package_by_its_entry_point():
    assert sorted(methods()) == sorted(METHODS)


@pytest.mark.parametrize("dist", METHODS)
def test_a_method_says_who_it_is_and_what_it_claims(dist):
    method = load_method(dist)
    assert method.dist == dist
    assert method.claims
    assert method.summary
    assert method.field


def test_no_two_distributions_own_one_file():
    owners = defaultdict(list)
    for dist in importlib.metadata.distributions():
        name = dist.name  # read from the metadata at every use
        for line in (dist.read_text("RECORD") or "").splitlines():
            owners[line.rsplit(",", 2)[0]].append(name)
    shared = {path: names for path, names in owners.items() if len(names) > 1 and set(names) & set(PACKAGES)}
    assert sum(map(len, owners.values())) > 1000
    assert not shared


def test_every_member_is_installed_at_the_version_of_its_folder():
    installed = {dist: importlib.metadata.version(dist) for dist in PACKAGES}
    assert installed == {dist: package.version for dist, package in PACKAGES.items()}


IMPORTS = """
import importlib, random, sys, warnings, numpy, torch
known, state = {}, lambda: (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), numpy.geterr(),
                            torch.initial_seed(), random.getstate(), numpy.random.get_state()[1].tolist())
before = state()
for name in sys.argv[1:]:
    known[name] = set(dir(importlib.import_module(name)))
assert state() == before, "an import changed what all share"
for name, names in known.items():
    assert set(dir(sys.modules[name])) >= names, f"{name} was changed by a later import"
"""


@pytest.mark.parametrize("turn", [1, -1], ids=["forward", "backward"])
def test_packages_import_in_any_order_and_leave_all_others_alone(turn):
    order = [PACKAGES[dist].module for dist in METHODS][::turn]
    subprocess.run([sys.executable, "-I", "-W", "error::UserWarning", "-c", IMPORTS, *order], check=True)
