from pathlib import Path

import pytest
from offprints import card

ENTRY = {
    "id": "gain",
    "where": "Table 1",
    "says": "Ours | loses less.",
    "paper": {"ours": 1.0},
    "metrics": {"ours": [1.0, 2.0]},
    "expect": [{"text": "ours < peer", "statistic": 0.5, "interval": [0.25, None], "verdict": "holds"}],
    "verdict": "holds",
    "note": "",
    "seeds": [0, 1],
}
FAILED = ENTRY | {"id": "loss", "paper": {}, "verdict": "fails", "note": "the cause\nis <known>"}
EMPTY = ENTRY | {"paper": {}, "expect": [], "metrics": {}, "verdict": "not run", "note": "get the model"}
CLAIMS = {
    "claims": [ENTRY, FAILED, EMPTY],
    "cost": {"gain": 1.5, "loss": 2.0},
    "env": {"cpu": "A CPU", "device": "cpu", "versions": {"numpy": "2.0", "toy": "0.3"}},
}
DUEL = {
    "id": "forward",
    "peer": "loop",
    "size": 8,
    "ratio": 5.25,
    "interval": [5.0, 5.5],
    "target": 5.0,
    "verdict": "pass",
    "memory": {"ours": 2**20, "peer": 3 * 2**20},
}
BENCH = {
    "duels": [
        DUEL | {"growth": {"expected": "n", "fitted": 1.02}},
        DUEL | {"id": "other", "target": None, "growth": None, "verdict": None, "memory": None},
    ],
    "env": {"cpu": "A CPU"},
}


def test_numbers() -> None:
    assert [card.number(x) for x in (0.123456, 1e-20, 12345.0, None, float("inf"))] == [
        "0.123",
        "1e-20",
        "1.23e+04",
        "∞",
        "∞",
    ]
    assert [card.interval(x) for x in (None, [1.0, 2.5], [None, None])] == ["", " [1, 2.5]", " [-∞, ∞]"]


def test_claims_table() -> None:
    head, rows = card.claims_table(CLAIMS)
    assert head == ["claim", "paper", "here", "verdict"]
    assert rows[0] == ["Ours | loses less. (Table 1)", "ours 1", "ours 1.5", "✓ holds"]
    assert rows[1][1:] == ["–", "ours < peer: 0.5 [0.25, ∞]", "✗ fails"]
    assert rows[2][2:] == ["get the model", "– not run"]
    assert card.measured(EMPTY | {"note": ""}) == "–"


def test_many_expectations_show_the_worst() -> None:
    expect = [{"text": f"e{i}", "statistic": 1.0, "interval": None, "verdict": "holds"} for i in range(4)]
    expect.append(expect[0] | {"text": "bad", "verdict": "fails"})
    assert card.measured(FAILED | {"expect": expect}) == "bad: 1; e0: 1; e1: 1; and 2 more"


def test_blocks() -> None:
    claims = card.claims_block(CLAIMS)
    assert claims.splitlines()[:3] == [
        "| claim | paper | here | verdict |",
        "| --- | --- | --- | --- |",
        "| Ours \\| loses less. (Table 1) | ours 1 | ours 1.5 | ✓ holds |",
    ]
    assert "- *loss*: the cause" in claims
    assert claims.endswith("in 4 s of one A CPU core, up to 2 seeds (numpy 2.0, toy 0.3).")
    quiet = card.claims_block(CLAIMS | {"claims": [ENTRY]})
    assert "- *" not in quiet
    bench = card.bench_block(BENCH)
    assert "| forward | loop | 8 | 5.25 [5, 5.5] | 5 | 1.0 / 3.0 | ✓ pass |" in bench
    assert "| other | loop | 8 | 5.25 [5, 5.5] | – | – | no target |" in bench
    assert "- *forward*: time grows as n, fitted exponent 1.02" in bench
    assert "- *" not in card.bench_block(BENCH | {"duels": BENCH["duels"][1:]})


def test_filling_a_readme() -> None:
    text = "# x\n<!-- a:begin -->\nold\n<!-- a:end -->\nkept\n<!-- b:begin -->\n<!-- b:end -->\n"
    filled = card.with_blocks(text, {"a": "new \\1", "b": "more"})
    assert filled == "# x\n<!-- a:begin -->\nnew \\1\n<!-- a:end -->\nkept\n<!-- b:begin -->\nmore\n<!-- b:end -->\n"
    assert card.with_blocks(filled, {"a": "new \\1"}) == filled
    with pytest.raises(ValueError, match="README.md must hold <!-- c:begin -->"):
        card.with_blocks(text, {"c": ""})


def test_report_is_whole_and_escaped(tmp_path: Path) -> None:
    png = tmp_path / "f.png"
    png.write_bytes(b"\x89PNG")
    section = card.section("A <Title>", "Adds $x & y.", CLAIMS, BENCH, {png: 'How "it" goes'})
    page = card.report([section, card.section("Second", "s", CLAIMS, None, {})], "All")
    assert "A &lt;Title&gt;" in page
    assert "Adds $x &amp; y." in page
    assert 'src="data:image/png;base64,iVBORw=="' in page
    assert "How &quot;it&quot; goes" in page
    assert '<td class="fails">✗ fails</td>' in page
    assert '<td class="not">– not run</td>' in page
    assert "loss: the cause\nis &lt;known&gt;" in page
    assert page.count("<h2>Benchmarks</h2>") == 1
    assert "http" not in page
